"""The agent loop, and the ports through which it reaches models, tools and the log."""

from pinfold.engine.approvals import digest_of
from pinfold.engine.context import request_of
from pinfold.engine.core import Breaker, Budget, Choice, Circuit, Circuits, CommandRefused, ContextLimits, Core
from pinfold.engine.engine import Engine
from pinfold.engine.fold import fold
from pinfold.engine.hooks import Hook, Hooks
from pinfold.engine.ports import (
    Journal,
    Model,
    NotShown,
    OnCall,
    OnOutput,
    Performed,
    PolicyContext,
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
from pinfold.engine.turn import model_key

__all__ = [
    "Breaker",
    "Budget",
    "Choice",
    "Circuit",
    "Circuits",
    "CommandRefused",
    "ContextLimits",
    "Core",
    "Engine",
    "Hook",
    "Hooks",
    "Journal",
    "Model",
    "NotShown",
    "OnCall",
    "OnOutput",
    "OpenAction",
    "Performed",
    "PolicyContext",
    "Rewound",
    "Spent",
    "State",
    "Stopped",
    "Verified",
    "changed_in_words",
    "compacted_in_words",
    "digest_of",
    "fold",
    "model_key",
    "plan_in_words",
    "request_of",
    "rewound_in_words",
]
