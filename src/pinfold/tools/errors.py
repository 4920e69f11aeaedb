"""What goes wrong with a tool, by who can mend it."""

from __future__ import annotations

from pinfold.events import PinfoldError


class ToolError(PinfoldError):
    """Base.

    ToolError
      BadTool       the author's: a function that cannot be a tool
      ToolFailed    shown to the model: unknown name, wrong arguments, or the tool's own failure
    """


class BadTool(ToolError):
    exit_code = 2


class ToolFailed(ToolError):
    def __init__(self, message: str, *, at_fault: bool = False, may_have_happened: bool = False) -> None:
        super().__init__(message)
        self.at_fault = at_fault
        """The tool itself failed; it was not merely called wrongly."""
        self.may_have_happened = may_have_happened
        """It was given up while it ran."""
