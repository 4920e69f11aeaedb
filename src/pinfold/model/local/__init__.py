"""Models that run on this machine: their weights, what runs them, and the servers others run here.

Nothing of weight is imported before it is used.
"""

from pinfold.model.local.builtin import BuiltinModel
from pinfold.model.local.catalogue import CATALOGUE, Weights, weights_named
from pinfold.model.local.discovery import FoundModel, FoundServer, probe
from pinfold.model.local.weights import OnPulling, Pulling, pull, pull_for_ollama, weights_at

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
