"""What a session's variables must be after a kill: plain Python is told the same cells, less what was named as lost."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from pinfold.app import read_session
from pinfold.events import ActionFinished, ActionProposed, ActionStarted, CallTool, RunCell, SessionId, SessionOpened

TRUE = "variables are as after the cells that are there"
NAMED = "a cell whose effects are gone was named when the session was opened"
RESUMED = "the session was opened again and ran a cell"
ONCE = "no effect of a tool happened twice"
DONE = "an effect that the log calls done happened"
ENDED = "every process of what was killed is gone"
LAWS = (RESUMED, TRUE, NAMED, ONCE, DONE, ENDED)
_LOST_CELLS = re.compile(r"what cells? ([0-9, ]+) did to variables")
CONTROL = "control: a last cell that is left out of plain Python shows"
_ALL = "all Python variables"

_TOOLS = "import _pinfold_guest.calls as tools"
CELLS: dict[str, list[str]] = {
    "first": ["import collections, re\nitems = [0]\nalias = items\ncounts = collections.Counter()\ntotal = 0"],
    "code": ["class Point:\n    def __init__(self, x): self.x = x\npoints = [Point(1)]\ndef double(x): return 2 * x"],
    "large": ["block = bytearray(8_000_000)\nfor at in range(0, len(block), 4096): block[at] = 1"],
    "effects": [
        f"{_TOOLS}\nsaid = tools.call('note', token='TOKEN')\nitems.append('TOKEN')",
        f"{_TOOLS}\nalias.append('before TOKEN')\nsaid = tools.call('note', token='TOKEN')\ntotal += 1",
    ],
    "changes": [
        "items.append(len(items)); counts['a'] += 1; total += double(len(points))",
        "import time\ntotal += 10\ntime.sleep(0.05)\npoints.append(Point(total))",
        "block[5::4096] = bytes([len(items)]) * len(range(5, len(block), 4096)); alias.append('block')",
        "bound = 'only'",
        "held = {'points': points, 'items': items}\ncounts.update('abc')",
        "running = (n for n in [1, 2]); alias.append(next(running))",
        "del held['points'][0]; total = -total",
        "alias = list(items); alias.append('apart')",
    ],
}
MARK = "mark_{at} = [len(globals().get('items', ()))]\n"
"""Before a cell: whatever else is lost, it shows that this one is there."""
_NAMES = ("items", "alias", "counts", "total", "points", "Point", "double", "block", "said", "bound", "held", "running")
_LOOK = f"""
import hashlib, types

def told(value):
    if isinstance(value, (bytes, bytearray)):
        return type(value).__name__ + ' ' + hashlib.sha256(value).hexdigest()
    if isinstance(value, types.FunctionType):
        return value.__name__ + ' gives ' + repr(value(3))
    if isinstance(value, type):
        return 'class ' + value.__name__
    if isinstance(value, types.GeneratorType):
        return 'generator'
    if type(value).__name__ == 'Point':
        return 'Point ' + repr(value.x)
    if type(value) is list:
        return '[' + ', '.join(map(told, value)) + ']'
    if isinstance(value, dict):
        return type(value).__name__ + repr(sorted((repr(key), told(one)) for key, one in value.items()))
    return repr(value)

def look(names):
    there = {{name: value for name, value in names.items() if name in {_NAMES!r} or name.startswith('mark_')}}
    same = [[a, b] for a in there for b in there if a < b and there[a] is there[b] and type(there[a]) is list]
    if 'held' in there:
        same += [key for key, one in there['held'].items() if one is there.get(key)]
    return {{'same': sorted(map(str, same)), **{{name: told(value) for name, value in there.items()}}}}
"""
PROBE = f"(lambda scope: (exec({_LOOK!r}, scope), print('SEEN', __import__('json').dumps(scope['look'](globals()))))[0])({{}})"


@dataclass(slots=True)
class Tally:
    examined: Counter[str] = field(default_factory=Counter[str])
    broken: Counter[str] = field(default_factory=Counter[str])
    seen: Counter[str] = field(default_factory=Counter[str])
    examples: list[str] = field(default_factory=list[str])

    def judge(self, law: str, holds: bool, how: str) -> None:
        self.examined[law] += 1
        if not holds:
            self.broken[law] += 1
            self.examples.append(f"{law}: {how}")


@dataclass(slots=True)
class Told:
    """What the log says of a session."""

    cells: dict[int, str] = field(default_factory=dict[int, str])
    unknown: set[int] = field(default_factory=set[int])
    """Cells that were started and whose end nobody saw."""
    done: list[str] = field(default_factory=list[str])
    """Tokens of calls that went well."""
    ends: dict[int, str] = field(default_factory=dict[int, str])
    """How each cell ended, where that was not well."""
    lost: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """What was named when the session was opened again, each with the last cell before."""
    given: set[int] = field(default_factory=set[int])
    """Cells that reached the sandbox, by its own record: one killed just before has its start in the log only."""

    @classmethod
    def of(cls, folder: Path) -> Told:
        told, codes, numbers = cls(), dict[str, str](), dict[str, int]()
        for line in (folder / "state" / "trail").read_text(encoding="utf-8").splitlines():
            match json.loads(line):
                case ["runs", int(number), _]:
                    told.given.add(number)
                case _:
                    pass
        tokens: dict[str, str] = {}
        with read_session(folder, SessionId(folder.name)) as (log, damage):
            for event in [entry.event for entry in log.read(damage=damage)]:
                match event:
                    case SessionOpened(lost=lost):
                        told.lost += [(max(told.cells, default=0), words) for words in lost]
                    case ActionProposed(id=id_, action=RunCell(code=code)):
                        codes[id_] = code
                    case ActionProposed(id=id_, action=CallTool(args=args)):
                        tokens[id_] = str(args.get("token"))
                    case ActionStarted(id=id_, cell=int(cell)):
                        numbers[id_] = cell
                        told.cells[cell] = codes[id_]
                    case ActionFinished(id=id_, outcome="outcome_unknown") if id_ in numbers:
                        told.unknown.add(numbers[id_])
                    case ActionFinished(id=id_, error=str(error), outcome=outcome) if id_ in numbers:
                        told.ends[numbers[id_]] = f"{outcome}: {error[-300:]}"
                    case ActionFinished(id=id_, outcome="ok") if id_ in tokens:
                        told.done.append(tokens[id_])
                    case _:
                        pass
        return told


@dataclass(slots=True)
class Reference:
    """Plain Python beside one session, over all its kills."""

    gone: set[int] = field(default_factory=set[int])
    """Cells whose effects are not there."""
    settled: set[int] = field(default_factory=set[int])
    """Cells that are known to be there or not."""
    without: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """Names that were lost, by the last cell before."""

    def hears(self, told: Told) -> None:
        """What the session said it has lost."""
        for last, words in told.lost:
            if words.startswith(_ALL):
                self.gone |= {cell for cell in told.cells if cell <= last}
            elif found := _LOST_CELLS.match(words):
                self.gone |= set(map(int, found[1].split(",")))
            else:
                self.without.setdefault(last, set()).add(words.partition(" (")[0])

    def agrees(self, told: Told, seen: dict[str, Any]) -> tuple[str, list[int]]:
        """How it differs, if it does; and which cells are gone though nobody said so."""
        self.gone |= told.unknown - told.given
        open_cells = sorted(told.unknown - self.gone - self.settled)
        self.settled |= told.cells.keys()
        with_all = self._names(told, self.gone)
        if with_all == seen:
            return "", []
        without = self._names(told, self.gone | {*open_cells})
        if open_cells and without == seen:
            self.gone |= {*open_cells}
            return "", open_cells
        differing = [name for name in with_all.keys() | seen.keys() if with_all.get(name) != seen.get(name)]
        shown = {name: (str(with_all.get(name))[:80], str(seen.get(name))[:80]) for name in sorted(differing)}
        how = f"expected and seen: {shown}; cells {[*told.cells]}, gone {self.gone}, unknown {open_cells}"
        return f"{how}; lost {told.lost}, ended badly {told.ends}", []

    def would_see(self, told: Told, seen: dict[str, Any]) -> bool:
        """A control: whether it shows if plain Python is not told of the last cell that is there."""
        there = [cell for cell, code in told.cells.items() if cell not in self.gone and "SEEN" not in code]
        return bool(there) and self._names(told, self.gone | {max(there)}) != seen

    def _names(self, told: Told, gone: set[int]) -> dict[str, Any]:
        scope: dict[str, Any] = {"__name__": "__main__"}
        for cell, code in sorted(told.cells.items()):
            if cell not in gone and "SEEN" not in code:
                _run(code, scope)
            for name in self.without.get(cell, ()):
                scope.pop(name, None)
        look: dict[str, Any] = {}
        exec(_LOOK, look)
        return json.loads(json.dumps(look["look"](scope)))


def _run(code: str, scope: dict[str, Any]) -> None:
    with suppress(Exception):  # the session's cell has failed in the same way
        exec(code, scope)


def _pretended(_tool: str, token: str) -> str:
    return f"noted {token}"


def pretend_tools() -> None:
    """So that plain Python can run the same cells, and nothing happens."""
    calls = ModuleType("_pinfold_guest.calls")
    calls.__dict__["call"] = _pretended
    package = ModuleType("_pinfold_guest")
    package.__dict__["calls"] = calls
    sys.modules |= {"_pinfold_guest": package, "_pinfold_guest.calls": calls}
