"""Errors from using a model, grouped by what the user can do about them."""

from __future__ import annotations

from pinfold.events import PinfoldError


class ModelError(PinfoldError):
    """Base class. A provider that refuses a request raises `RequestFailed` (in events) instead.

    ModelError
      UnknownModel    no model has this name: fix the name
      NoKey           the provider needs a key, and none is set
      BadScript       a script or recording cannot be read, or expected a different conversation
      NotInstalled    the provider's package is missing: install it
      NotPulled       an UnknownModel whose weights are not on this machine: pull them
      PullFailed      the weights could not be fetched: try again
      RuntimeMissing  llama.cpp is not installed, and installing it failed
      CannotServe     the model cannot be served with these options
    """

    exit_code = 2


class UnknownModel(ModelError): ...


class NoKey(ModelError): ...


class BadScript(ModelError): ...


class NotInstalled(ModelError):
    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} the extra `{extra}`: pinfold extras add {extra}")
        self.extra = extra


class NotPulled(UnknownModel): ...


class PullFailed(ModelError):
    """Bytes fetched so far are kept; the next pull resumes from there."""

    exit_code = 75


class RuntimeMissing(ModelError): ...


class CannotServe(ModelError): ...
