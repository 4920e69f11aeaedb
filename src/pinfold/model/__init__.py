"""Language models: a request in, text and tool calls out. No provider's format leaves this package."""

from pinfold.model.chain import model_named
from pinfold.model.errors import BadScript, ModelError, NoKey, NotInstalled, UnknownModel
from pinfold.model.names import (
    ANSWER_FORM,
    BUILTIN,
    DIRECT,
    FILES,
    SERVICES,
    Access,
    ModelRef,
    Profile,
    destination_of,
    full_name,
    key_variables,
    ollama_url,
    parse_model_name,
    profile_of,
)
from pinfold.model.scripted import KeptCall, KeptReply, ScriptedModel, record

__all__ = [
    "ANSWER_FORM",
    "BUILTIN",
    "DIRECT",
    "FILES",
    "SERVICES",
    "Access",
    "BadScript",
    "KeptCall",
    "KeptReply",
    "ModelError",
    "ModelRef",
    "NoKey",
    "NotInstalled",
    "Profile",
    "ScriptedModel",
    "UnknownModel",
    "destination_of",
    "full_name",
    "key_variables",
    "model_named",
    "ollama_url",
    "parse_model_name",
    "profile_of",
    "record",
]
