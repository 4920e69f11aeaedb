"""What is known of a saved variable, and of one that was restored; and which variables are saved together. No bytes of values."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
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


class VariableGroups:
    """Names that belong together."""

    def __init__(self, names: Iterable[str]) -> None:
        self._leader = {name: name for name in names}

    def leader(self, name: str) -> str:
        leader = self._leader
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    def join(self, one: str, other: str) -> None:
        self._leader[self.leader(one)] = self.leader(other)

    def sort_by_use(self, uses: Mapping[str, set[str]]) -> list[list[str]]:
        """Whoever is used comes first; those that use each other are joined."""
        while True:
            graph: dict[str, set[str]] = {}
            for name in self._leader:
                held = graph.setdefault(self.leader(name), set())
                held.update(map(self.leader, uses[name]))
            for name, held in graph.items():
                held.discard(name)
            try:
                order = list(TopologicalSorter(graph).static_order())
                break
            except CycleError as cycle:
                first, *rest = cycle.args[1]
                for name in rest:
                    self.join(first, name)
        members: dict[str, list[str]] = {}
        for name in self._leader:
            members.setdefault(self.leader(name), []).append(name)
        return [members[name] for name in order]
