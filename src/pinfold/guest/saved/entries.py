"""What is known of a saved variable, and of one that was restored; and which variables are saved together. No bytes of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One variable as it was saved, or why it was not. `needs` and `digest` name all the bytes it takes."""

    name: str
    kind: str
    """`pickle`, `npy`, `module` and `import` (by the name `of`), `alias` (the same object as `of`), `lost`."""
    digest: str = ""
    """SHA-256 of its bytes. Variables that share an object have one in common; of a package, what was imported in it."""
    needs: Sequence[str] = ()
    """Digests of the memory that is stored apart from them."""
    size: int = 0
    """With what is apart."""
    of: str = ""
    note: str = ""
    """What the user should know of a variable that is restored."""
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """For JSON."""
        fields = self._replace(needs=tuple(self.needs))._asdict()
        return {key: value for key, value in fields.items() if value or key in ("name", "kind")}


class Label(NamedTuple):
    """What became of a variable: `restored`, with what the user should know of it, or `lost`, with the reason."""

    name: str
    status: str
    reason: str = ""

    def row(self) -> dict[str, object]:
        """For JSON."""
        return self._asdict()


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
        """What is used comes first; names that use each other are joined."""
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
