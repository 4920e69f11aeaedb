"""Context in, text and calls out. No provider's format leaves this room."""

from pinfold.model.errors import BadScript, ModelError, UnknownModel
from pinfold.model.http import Patience
from pinfold.model.lines import KeptCall, KeptReply
from pinfold.model.names import Model, full_name, model_named
from pinfold.model.ollama import OllamaModel
from pinfold.model.openai import OpenAIModel
from pinfold.model.replay import ReplayModel, record
from pinfold.model.scripted import ScriptedModel

__all__ = [
    "BadScript",
    "KeptCall",
    "KeptReply",
    "Model",
    "ModelError",
    "OllamaModel",
    "OpenAIModel",
    "Patience",
    "ReplayModel",
    "ScriptedModel",
    "UnknownModel",
    "full_name",
    "model_named",
    "record",
]
