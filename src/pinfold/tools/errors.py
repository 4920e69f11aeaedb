"""What goes wrong with a tool, by who can fix it."""

from __future__ import annotations

from pinfold.events import PinfoldError, Sent


class ToolError(PinfoldError):
    """Base.

    ToolError
      BadTool       the author's: a function or a file that cannot be a tool, a name in the config that is none
      BadCall       raised by a tool: it cannot do what it was asked for; no fault of its own, unless it says so
      ToolFailed    shown to the model: unknown name, wrong arguments, or the tool's own failure
    """


class BadTool(ToolError):
    exit_code = 2


class _CallError(ToolError):
    def __init__(
        self,
        message: str,
        *,
        at_fault: bool = False,
        may_have_happened: bool = False,
        untrusted: bool = False,
        sent: tuple[Sent, ...] = (),
    ) -> None:
        super().__init__(message)
        self.at_fault = at_fault
        """The tool itself failed; it was not merely called wrongly."""
        self.may_have_happened = may_have_happened
        """It was given up while it ran."""
        self.untrusted = untrusted
        """The message may hold somebody else's words."""
        self.sent = sent
        """What had left this machine by then."""


class BadCall(_CallError): ...


class ToolFailed(_CallError): ...
