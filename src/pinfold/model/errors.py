"""How using a model fails, by what helps."""

from __future__ import annotations

from pinfold.events import PinfoldError


class ModelError(PinfoldError):
    """Base. `RequestFailed` (in events) is what a provider's refusal becomes.

    ModelError
      UnknownModel    the name means nothing here: fix the name
      NoKey           the provider wants a key, and none is set
      BadScript       a script or recording that cannot be read, or that expected something else
      NotInstalled    the package that speaks to the provider is not there: install it
      NotPulled       an UnknownModel whose weights are not on this machine: pull them
      PullFailed      the weights could not be fetched: try again
      RuntimeMissing  llama.cpp is not installed, and could not be
      CannotServe     the model cannot be served like this
    """

    exit_code = 2


class UnknownModel(ModelError):
    pass


class NoKey(ModelError):
    pass


class BadScript(ModelError):
    pass


class NotInstalled(ModelError):
    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} the extra `{extra}`: pinfold extras add {extra}")
        self.extra = extra


class NotPulled(UnknownModel):
    pass


class PullFailed(ModelError):
    """What came so far is kept; the next pull goes on from there."""

    exit_code = 75


class RuntimeMissing(ModelError):
    pass


class CannotServe(ModelError):
    pass
