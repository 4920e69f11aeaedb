"""What a session and its keeper need of each other: what is asked of a keeper, and what it wants mounted."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field

from pinfold.sandbox._new_names import NOTHING, Names


class Keeping(Protocol):
    """What a session asks of its keeper. `names`: what the history of the files saw happen; None where there is none."""

    def before(self, names: Names | None = NOTHING) -> None:
        """A cell is about to run: what differs now was not its doing."""
        ...

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        """It has ended: everything guarded is as before. One line for each thing put back, for the model and the user."""
        ...

    def allow(self, path: str) -> None:
        """The host is about to change this, as the user agreed, before the next cell runs."""
        ...

    @property
    def sees_names(self) -> bool:
        """It needs nobody to tell it names."""
        ...

    @property
    def fought(self) -> str | None:
        """Something that does not stay as it was put back: whatever runs in the session must end."""
        ...

    def settle(self) -> tuple[str, ...]:
        """Nothing of the session runs any more: put back what was fought over, and say what cannot be."""
        ...

    def last(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        """As `settle`, at the end of the session, for everything."""
        ...

    def parting(self) -> tuple[str, ...]:
        """What the user must know when the session has ended."""
        ...

    @property
    def lost(self) -> tuple[str, ...]:
        """What could not be put back: the workspace is not as promised."""
        ...

    @property
    def fd(self) -> int | None:
        """Readable when `noticed` should be called; None: only cells are looked at."""
        ...

    def noticed(self, names: Names | None = NOTHING) -> None: ...

    def close(self) -> None: ...


class Mounts(Struct, frozen=True, kw_only=True):
    """What the session's init is to mount, in this order, each by the path the session sees."""

    masked: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    pinned: list[str] = field(default_factory=list[str])
    protected: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return bool(self.masked or self.pinned or self.protected)
