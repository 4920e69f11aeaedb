"""Context in, text and calls out. No provider's format leaves this room."""

from pinfold.model.chain import model_named
from pinfold.model.errors import BadScript, ModelError, NoKey, NotInstalled, UnknownModel
from pinfold.model.lines import KeptCall, KeptReply
from pinfold.model.names import BUILTIN, Access, destination_of, full_name, parse_model_name, profile_of
from pinfold.model.replay import ReplayModel, record
from pinfold.model.scripted import ScriptedModel
from pinfold.model.services import ANSWER_FORM, DIRECT, SERVICES, key_variables, ollama_url
from pinfold.model.traits import Profile, Traits, traits_of

__all__ = [
    "ANSWER_FORM",
    "BUILTIN",
    "DIRECT",
    "SERVICES",
    "Access",
    "BadScript",
    "KeptCall",
    "KeptReply",
    "ModelError",
    "NoKey",
    "NotInstalled",
    "Profile",
    "ReplayModel",
    "ScriptedModel",
    "Traits",
    "UnknownModel",
    "destination_of",
    "full_name",
    "key_variables",
    "model_named",
    "ollama_url",
    "parse_model_name",
    "profile_of",
    "record",
    "traits_of",
]
