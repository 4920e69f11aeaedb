"""How using a model fails, by what helps."""

from __future__ import annotations

from pinfold.events import PinfoldError


class ModelError(PinfoldError):
    """Base. `RequestFailed` (in events) is what a provider's refusal becomes.

    ModelError
      UnknownModel    the name means nothing here: fix the name
      NoKey           the provider wants a key that is nowhere to be found
      BadScript       a script or recording that cannot be read, or that expected something else
      NotInstalled    the package that speaks to the provider is not there: install it
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
    """The weights are not on this machine, and may not be fetched unasked."""


class PullFailed(ModelError):
    """The weights could not be had. What came so far is kept; the next pull goes on from there."""

    exit_code = 75


class RuntimeMissing(ModelError):
    """What runs the weights is not here and could not be had."""


class CannotServe(ModelError):
    """This model cannot be served like this."""
