"""Models that run on this machine: their weights, what runs them, and the servers others run here.

Nothing of weight is imported before it is used.
"""

from pinfold.model.local.builtin import BuiltinModel
from pinfold.model.local.discovery import FoundModel, FoundServer, probe
from pinfold.model.local.weights import (
    CATALOGUE,
    OnPulling,
    Pulling,
    Weights,
    pull,
    pull_for_ollama,
    weights_at,
    weights_named,
)

__all__ = [
    "CATALOGUE",
    "BuiltinModel",
    "FoundModel",
    "FoundServer",
    "OnPulling",
    "Pulling",
    "Weights",
    "probe",
    "pull",
    "pull_for_ollama",
    "weights_at",
    "weights_named",
]
