"""The agent loop, and the ports through which it reaches models, tools and the log."""

from pinfold.engine.approvals import digest_of
from pinfold.engine.context import request_of
from pinfold.engine.core import Breaker, Budget, Choice, CommandRefused, ContextLimits, Core, Line, Lines
from pinfold.engine.engine import Engine
from pinfold.engine.fold import fold
from pinfold.engine.hooks import Hook, Hooks
from pinfold.engine.ports import (
    Given,
    Journal,
    Model,
    NotShown,
    OnCall,
    OnOutput,
    Performed,
    Rewound,
    Spent,
    Stopped,
    Verified,
)
from pinfold.engine.state import (
    OpenAction,
    State,
    changed_in_words,
    compacted_in_words,
    plan_in_words,
    rewound_in_words,
)
from pinfold.engine.turn import the_model

__all__ = [
    "Breaker",
    "Budget",
    "Choice",
    "CommandRefused",
    "ContextLimits",
    "Core",
    "Engine",
    "Given",
    "Hook",
    "Hooks",
    "Journal",
    "Line",
    "Lines",
    "Model",
    "NotShown",
    "OnCall",
    "OnOutput",
    "OpenAction",
    "Performed",
    "Rewound",
    "Spent",
    "State",
    "Stopped",
    "Verified",
    "changed_in_words",
    "compacted_in_words",
    "digest_of",
    "fold",
    "plan_in_words",
    "request_of",
    "rewound_in_words",
    "the_model",
]
