"""Which variables are saved as one, and in which order. Knows names only."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
