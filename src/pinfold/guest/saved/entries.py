"""What is known of a saved variable, and of one that was restored. Plain data, for JSON; no bytes of the values."""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Entry:
    """One variable as it was saved, or why it was not. `needs` and `digest` name all the bytes it takes."""

    __slots__ = ("digest", "kind", "name", "needs", "note", "of", "reason", "size")

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        digest: str = "",
        needs: Sequence[str] = (),
        size: int = 0,
        of: str = "",
        note: str = "",
        reason: str = "",
    ) -> None:
        self.name = name
        self.kind = kind
        """`pickle`, `npy`, `module` and `import` (by the name `of`), `alias` (the same object as `of`), `lost`."""
        self.digest = digest
        """SHA-256 of its bytes. Variables that share an object have one in common; of a package, what was imported in it."""
        self.needs = tuple(needs)
        """Digests of the memory that is stored apart from them."""
        self.size = size
        """With what is apart."""
        self.of = of
        self.note = note
        """What the user should know of a variable that is restored."""
        self.reason = reason

    def row(self) -> dict[str, object]:
        """For JSON."""
        return {key: value for key in self.__slots__ if (value := getattr(self, key)) or key in ("name", "kind")}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Entry:
        return cls(**row)


class Label:
    """What became of a variable: `restored`, with what the user should know of it, or `lost`, with the reason."""

    __slots__ = ("name", "reason", "status")

    def __init__(self, name: str, status: str, reason: str = "") -> None:
        self.name = name
        self.status = status
        self.reason = reason

    def row(self) -> dict[str, object]:
        """For JSON."""
        return {"name": self.name, "status": self.status, "reason": self.reason}
