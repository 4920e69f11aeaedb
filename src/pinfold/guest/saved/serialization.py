"""Turns the session's variables into bytes from which another process can restore them with `deserialization`.

Called in a copy of the session's process that runs no more cells: saving runs code of the program (`__reduce__`, and
reading back to compare), so the copy must not become the session again. Uses no threads and no files; the bytes go to
`write`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from gc import disable, enable, isenabled
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from json import dumps
from typing import Any
from warnings import catch_warnings, simplefilter

from . import arrays
from .comparison import Comparison
from .deserialization import LENGTH, Entry, OutOfTime, TimeLimit, Unpickler
from .introspection import (
    SESSION,
    Unsaved,
    cut,
    find_in_modules,
    full_name,
    import_name,
    inner_modules,
    is_empty,
    module_of,
    one_line,
    why_unsavable,
)
from .pickler import ATOMS, Found, Graph, Pickler, Stream, TooLarge

Piece = bytes | memoryview


SECONDS = 20.0
"""Time limit for the program's own code of one variable."""
COMPARED_BYTES = 16 << 20
"""A stream up to this size is read back and compared before it counts as saved; a longer one if it `may_differ`."""
DEPTH = 10_000
"""How deep values may be nested, where Python's recursion limit decides."""
OPEN = ("builtins", SESSION)
"""Modules of types whose values share memory because the user wants it, not because of a library's internals."""
_NAMES = "__builtins__ __name__ __doc__ __loader__ __spec__ __package__ __file__ __cached__ _dh __warningregistry__"
NOT_OURS = frozenset(_NAMES.split())
"""Names that every session has."""


def save(
    namespace: dict[str, object],
    known: Container[str],
    write: Callable[[str, Sequence[Piece]], None],
    *,
    cap_bytes: int,
    each_bytes: int,
    seconds: float = SECONDS,
    skip: Mapping[str, str] | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Entry]:
    """Save the variables. Return one entry for each, in the order in which to restore them.

    Calls `write(digest, pieces)` for all bytes whose digest is not in `known`. Calls `tell(name)` before the program's
    own code of that variable may run; if that hung and the copy had to be ended, the caller passes the name in `skip`
    next time, with the reason why it is lost.
    """
    with _quiet(), TimeLimit(seconds) as bound:
        saving = _Saving(namespace, bound, each_bytes, tell or (lambda _name: None))
        saving.take(skip or {})
        saving.group()
        saving.fit(cap_bytes)
        saving.digest()
        saving.compare(known)
        saving.send(known, write)
        return saving.entries()


class _Part:
    """Variables that are saved together, because they share objects that only they hold."""

    def __init__(self, own: dict[str, object], stream: Stream, found: Found) -> None:
        self.own = own
        self.stream = stream
        self.found = found
        self.digest = ""
        self.needs: list[str] = []
        self.held: dict[str, Sequence[Piece]] = {}
        """The bytes to store, by digest."""

    def hold(self, pieces: Sequence[Piece]) -> str:
        digest = _digest(pieces)
        self.held[digest] = pieces
        return digest


class VariableGroups:
    """Groups of names that belong together (a union-find structure)."""

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
        """Return the groups with used ones before their users. Joins names that use each other."""
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


class _Saving:
    def __init__(
        self, namespace: dict[str, object], bound: TimeLimit, each_bytes: int, tell: Callable[[str], None]
    ) -> None:
        self._bound = bound
        self._each_bytes = each_bytes
        self._tell = tell
        self._graph = Graph(namespace)
        self._modules: dict[str, str] = {}
        self._inner: dict[str, str] = {}
        """By package: the digest of the list of modules that were imported inside it."""
        self._imported: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._parts: list[_Part] = []
        self._notes: dict[str, list[str]] = {}

    # Each variable alone

    def take(self, skip: Mapping[str, str]) -> None:
        values = self._select_values(self._graph.namespace.copy(), skip)
        for name, value in values.items():
            if name in skip:
                self._lost[name] = skip[name]
            else:
                self._add({name: value})
        self._find_shared()
        whole, shared = self._graph.whole, self._graph.memory.shared
        for part in self._parts.copy():
            if not (whole.isdisjoint(part.found.states) and shared.isdisjoint(part.found.memory)):
                self._parts.remove(part)
                self._add(part.own)
        self._spread_losses()

    def _find_shared(self) -> None:
        """Find memory of arrays and attribute dicts of objects that are shared."""
        self._graph.memory.share()
        times = {key: 0 for part in self._parts for key in part.found.states}
        for found in (part.found for part in self._parts):
            for key in found.states:
                times[key] += 1 + (key in found.twice)
            for key in times.keys() & (found.seen.keys() - found.states.keys()):
                times[key] += 1
        self._graph.whole.update(key for key, number in times.items() if number > 1)

    def _select_values(self, namespace: dict[str, object], skip: Mapping[str, str]) -> dict[str, object]:
        """Return the variables to pickle: not modules, what is found in modules, or further names of one object."""
        graph, first = self._graph, dict[int, str]()
        values: dict[str, object] = {}
        for name, value in namespace.items():
            kind = type(value)
            if type(name) is not str or name in NOT_OURS:
                continue
            module_name = SESSION if value is sys.modules.get(SESSION) else import_name(value)
            if module_name is not None:
                self._modules[name] = module_name
            elif (path := full_name(value)) is not None:
                self._imported[name] = path
            elif kind not in ATOMS and id(value) in first and name not in skip:
                self._aliases[name] = first[id(value)]
            else:
                values[name] = value
                first[id(value)] = name
                graph.add(name, value)
        return values

    def _add(self, own: dict[str, object]) -> None:
        """Pickle these variables together; if that fails, all of them are lost."""
        name = next(iter(own))
        self._tell(name)
        try:
            self._parts.append(self._bound.run(lambda: self._pickle(own)))
        except Unsaved as unsaved:
            is_itself = len(own) == 1 and why_unsavable(type(own[name])) is not None
            self._lose(own, str(unsaved) if is_itself else f"inside it: {unsaved}")
        except TooLarge:
            self._lose(own, f"it is larger than the {_megabytes(self._each_bytes)} kept of a variable")
        except OutOfTime:
            self._lose(own, "saving it took too long")
        except BaseException as error:
            self._lose(own, one_line(error))

    def _lose(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            self._lost.setdefault(name, cut(reason))

    def _pickle(self, own: dict[str, object]) -> _Part:
        stream = Stream(self._each_bytes * len(own))
        pickler = Pickler(stream, self._graph, own)
        pickler.dump(own)
        return _Part(own, stream, pickler.found)

    def _spread_losses(self) -> None:
        """Mark variables that hold a lost variable as lost too."""
        while True:
            kept: list[_Part] = []
            for part in self._parts:
                gone = min((name for name in part.found.uses if name in self._lost), default=None)
                if gone is None:
                    kept.append(part)
                else:
                    self._lose(part.own, f"it holds {gone!r}, which is lost")
            if len(kept) == len(self._parts):
                return
            self._parts = kept

    # Variables together

    def group(self) -> None:
        """Make one part of variables that share unnamed objects or hold each other; held ones come before holders."""
        self._note_parted()
        parts = {name: part for part in self._parts for name in part.own}
        groups = VariableGroups(parts)
        owner: dict[int, str] = {}
        for name, part in parts.items():
            for key in part.found.seen.keys() - self._graph.ignored:
                other = owner.setdefault(key, name)
                if other is not name:
                    groups.join(other, name)
            part.found.seen.clear()
        order = groups.sort_by_use({name: part.found.uses for name, part in parts.items()})
        self._parts = []
        for names in order:
            if len(names) == 1:
                self._parts.append(parts[names[0]])
            else:
                self._add({name: parts[name].own[name] for name in names})
        self._spread_losses()

    def _note_parted(self) -> None:
        """Add notes to variables whose memory will no longer be shared, and to those that are copies of a module's."""
        holders, hidden = self._graph.memory.holders, self._graph.memory.hidden
        things: dict[int, list[set[int | str]]] = {}
        for part in self._parts:
            for key in holders & part.found.seen.keys():
                things.setdefault(key, []).append({key})
            for key, told in part.found.memory.items():
                things.setdefault(hidden.get(key, key), []).append({key} if key in hidden else told)
        for part in self._parts:
            (value,) = part.own.values()
            is_open = module_of(type(value)) in OPEN
            for key, told in part.found.memory.items():
                others = things[hidden.get(key, key)]
                is_parted = len(set[int | str]().union(*others)) > 1
                if told != {arrays.FRAME} and is_parted and (is_open or len(others) > 1):
                    self._note(part.own, "its memory is no longer shared with another variable's")
        wanted: dict[int, str] = {}
        for key, name in self._graph.known.items():
            value = self._graph.namespace.get(name) if type(name) is str else None
            if not callable(value) and not is_empty(value):
                wanted[key] = str(name)
        for name, module_name in find_in_modules(wanted, self._graph.namespace).items():
            self._note([name], f"a copy of what module {module_name!r} holds")

    def _note(self, names: Iterable[str], note: str) -> None:
        for name in names:
            self._notes.setdefault(name, []).append(note)

    def fit(self, cap_bytes: int) -> None:
        """Keep what fits in `cap_bytes`, smaller parts first, so that one large variable does not cost all others."""
        total = 0
        for part in sorted(self._parts, key=lambda part: part.stream.size):
            total += part.stream.size
            if total > cap_bytes:
                self._lose(part.own, f"the saved state of a session is limited to {_megabytes(cap_bytes)}")
        self._drop()

    def _drop(self) -> None:
        self._parts = [part for part in self._parts if any(name not in self._lost for name in part.own)]
        self._spread_losses()

    def digest(self) -> None:
        for part in self._parts:
            apart = [part.hold([one.raw()]) for one in part.stream.apart]
            texts = [part.hold([one]) for one in part.stream.texts]
            header = dumps({"apart": apart, "texts": texts}).encode()
            part.needs = [*apart, *texts]
            part.digest = part.hold([LENGTH.pack(len(header)), header, *part.stream.parts])

    # Verification

    def compare(self, known: Container[str]) -> None:
        """Read back parts that are new and small, or may differ. Variables that come back different are lost."""
        for part in self._parts:
            is_easy = part.stream.length() > COMPARED_BYTES or part.digest in known
            if is_easy and not part.found.may_differ:
                continue
            self._tell(next(iter(part.own)))
            is_large = sum(len(one.raw()) for one in part.stream.apart) > COMPARED_BYTES
            try:
                self._bound.run(lambda part=part, is_large=is_large: self._compare(part, is_large))
            except OutOfTime:
                self._lose(part.own, "reading it back took too long")
            except Unsaved as unsaved:
                self._lose(part.own, str(unsaved))
            except BaseException as error:
                if not is_large:  # large memory is read-only here, so the failure may be only an attempt to write
                    self._lose(part.own, f"it cannot be read back: {one_line(error)}")
        self._drop()

    def _compare(self, part: _Part, is_large: bool) -> None:
        namespace = self._graph.namespace

        def of_name(name: str) -> object:
            if name in part.own:
                raise Unsaved("it is only known by its name")
            return namespace[name]

        buffers = [one.raw().toreadonly() if is_large else bytearray(one.raw()) for one in part.stream.apart]
        stream = part.stream
        read = Unpickler(b"".join(stream.parts), buffers, stream.texts, of_name, namespace).load()
        for name, value in part.own.items():
            comparison = Comparison()
            difference = comparison.compare(value, read[name])
            if difference is not None:
                self._lost[name] = cut(difference)
            self._notes.setdefault(name, []).extend(comparison.notes)

    # Output

    def send(self, known: Container[str], write: Callable[[str, Sequence[Piece]], None]) -> None:
        bytes_of: dict[str, Sequence[Piece]] = {}
        for name in {*self._modules.values()}:
            inner = "\n".join(inner_modules(name)).encode()
            if inner:
                self._inner[name] = _digest([inner])
                bytes_of[self._inner[name]] = [inner]
        for part in self._parts:
            bytes_of.update(part.held)
        for digest, pieces in bytes_of.items():
            if digest not in known:
                write(digest, pieces)

    def entries(self) -> list[Entry]:
        found = [Entry(name, "module", of=of, digest=self._inner.get(of, "")) for name, of in self._modules.items()]
        found += [Entry(name, "import", of=of) for name, of in self._imported.items()]
        for part in self._parts:
            told: dict[str, Any] = {"digest": part.digest, "needs": part.needs, "size": part.stream.size}
            for name in part.own:
                if name not in self._lost:
                    notes = dict.fromkeys([*part.found.notes, *self._notes.get(name, ())])
                    found.append(Entry(name, "pickle", note=cut("; ".join(notes)), **told))
        for name, of in self._aliases.items():
            if of in self._lost:
                self._lost[name] = self._lost[of]
            else:
                found.append(Entry(name, "alias", of=of))
        return found + [Entry(name, "lost", reason=reason) for name, reason in self._lost.items()]


def _digest(pieces: Sequence[Piece]) -> str:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size:,} bytes"


@contextmanager
def _quiet() -> Generator[None]:
    """Allow deep values, suppress warnings, and stop the garbage collector, whose writes would copy shared memory."""
    depth, was_collecting = sys.getrecursionlimit(), isenabled()
    disable()
    sys.setrecursionlimit(max(depth, DEPTH))
    try:
        with catch_warnings():
            simplefilter("ignore")
            yield
    finally:
        sys.setrecursionlimit(depth)
        if was_collecting:
            enable()
