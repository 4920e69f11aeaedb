"""How a local model fails, by what helps. One line each: what is wrong and how to go on."""

from __future__ import annotations

from pinfold.model.errors import ModelError, UnknownModel


class NotPulled(UnknownModel):
    """The weights are not on this machine, and nobody said to fetch them."""


class PullFailed(ModelError):
    """The weights could not be had. What came so far is kept; the next pull goes on from there."""

    exit_code = 75


class RuntimeMissing(ModelError):
    """What runs the weights is not here and could not be had."""


class CannotServe(ModelError):
    """This model cannot be served like this."""
