"""The status line: model, mode, tokens, cost, context, sandbox, folder. Computed from events."""

from __future__ import annotations

from msgspec import Struct

from pinfold.app import SessionStatus
from pinfold.events import ActionFinished, ContextCompacted, Event, ModelReplied, SessionChanged, SessionOpened, Usage
from pinfold.front.pages import cut_start
from pinfold.front.progress import short
from pinfold.text import abbreviate_home, presentable_line

_NAME = 12
"""Characters of a model's name that are always shown."""


class Status(Struct):
    model: str = ""
    mode: str = ""
    sandbox: str = ""
    folder: str = ""
    context: int = 0
    """The model's context in tokens; 0 if unknown."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None once a price is unknown."""
    filled: int = 0
    """Tokens in the context at the model's last reply."""

    def join(self, status: SessionStatus) -> None:
        """Update from the owner's status, which is more accurate than the log."""
        self.model = status.model or self.model
        self.mode = status.mode or self.mode
        self.sandbox = status.sandbox or self.sandbox
        self.context = status.context
        self.folder = status.workspace or self.folder

    def take(self, event: Event) -> None:
        match event:
            case SessionOpened():
                self.model, self.mode, self.sandbox = event.model, event.mode, event.sandbox
                self.folder = event.workspace
            case SessionChanged():
                self.mode = event.mode or self.mode
                self.model = event.model or self.model
            case ModelReplied():
                self.model = event.model
                self.filled = event.usage.total or self.filled
                if not event.from_cache:
                    self._add(event.usage, event.cost)
            case ContextCompacted(after=after):
                self.filled = after
            case ActionFinished(usage=Usage() as usage, cost=cost):
                self._add(usage, cost)
            case _:
                pass

    def _add(self, usage: Usage, cost: float | None) -> None:
        if not usage.total:
            return
        self.usage += usage
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def line(self, columns: int) -> str:
        """Return the line; on a narrow terminal long names lose their beginning."""
        used = self.usage
        tokens = f"{short(used.input_tokens)} in {short(used.output_tokens)} out"
        if used.cached_tokens:
            tokens += f" {short(used.cached_tokens)} cached"
        cost = "cost unknown"
        if self.cost is not None:
            cost = f"${self.cost:.4f}" if 0 < self.cost < 0.01 else f"${self.cost:.2f}"
        # `auto` means that no sandbox is chosen yet; here it would read like the mode `auto`.
        sandbox = "" if self.sandbox == "auto" else self.sandbox
        rest = " · ".join(filter(None, (self.mode, tokens, cost, self._share(), sandbox)))
        room = columns - len(rest) - _NAME - 7
        if self.folder and room >= _NAME:
            rest += f" · {cut_start(abbreviate_home(self.folder), room)}"
        rest = presentable_line(rest)
        model = cut_start(presentable_line(self.model), max(_NAME, columns - len(rest) - 4))
        return f"{model} · {rest}" if model else rest

    def _share(self) -> str:
        if not self.context:
            return f"{short(self.filled)} of context" if self.filled else ""
        return f"{min(1.0, self.filled / self.context):.0%} of {short(self.context)}"
