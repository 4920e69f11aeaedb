"""Whatever comes in whatever order, a session agrees with plain Python that was told the same."""

from __future__ import annotations

import copy
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from pinfold.sandbox import Limits, Outcome, Resumable, SandboxUnavailable, Session, Spec
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.sandbox.session.recovery import BRANCHES_ENDED

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
EXAMPLES = int(os.environ.get("PINFOLD_UNDO_EXAMPLES", "5"))
STEPS = int(os.environ.get("PINFOLD_UNDO_STEPS", "14"))
LIMITS = Limits(cell_s=20, interrupt_grace_s=1, memory_bytes=700 << 20)
BEGIN = "items = [0]\nalias = items\nx = 0"
LOOK = (
    "[(name, globals().get(name, 'nothing')) for name in ('items', 'alias', 'x')], "
    "globals().get('items', 1) is globals().get('alias', 2)"
)
CELLS = {
    "grows": "items.append({n})",
    "grows by its other name": "alias.append({n})",
    "only binds": "x = {n}",
    "shares": "alias = items",
    "parts": "alias = list(items)",
    "removes a name": "del alias",
    "fails half-way": "items.append({n})\n1 / 0",
    "begins": BEGIN,
}
WRITES = {"makes a file": "open('note.txt', 'w').write('{n}')", "removes it": "os.unlink('note.txt')"}
COMMANDS = {
    "makes a file": "printf {n} > note.txt",
    "makes a file and fails": "printf {n} > note.txt; exit 1",
    "makes a file and leaves something running": "printf {n} > note.txt; sleep 60 > /dev/null 2>&1 &",
    "removes it": "rm -f note.txt",
}
CRASHES = ("os._exit(1)", "os.kill(os.getpid(), 9)")
DEAF = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass"
NOTE = "note.txt"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class State:
    """After a cell: the names and what they stand for, and the one file."""

    names: dict[str, Any] = field(default_factory=dict[str, Any])
    note: str | None = None

    def after(self, code: str) -> State:
        """Plain Python's opinion."""
        names = copy.deepcopy(self.names)
        scope: dict[str, Any] = dict(names)
        with suppress(NameError, ZeroDivisionError):
            exec(code, scope)
        scope.pop("__builtins__", None)
        return State(scope, self.note)

    def seen(self) -> str:
        return repr(eval(LOOK, dict(self.names)))


class Machine(RuleBasedStateMachine):
    """A durable session and its states as they should be."""

    portal: BlockingPortal

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.folder.chmod(0o755)
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir()
        self.number = 0
        self.path: list[tuple[int, State]] = [(0, State())]
        self.undone: list[list[tuple[int, State]]] = []
        self.branches: list[tuple[Session, State]] = []
        self.session = self.opened()
        self.cell(BEGIN)
        self.leads_to(State().after(BEGIN))

    def opened(self) -> Resumable:
        spec = Spec(workspace=self.workspace, state=self.folder / "state", limits=LIMITS)
        session = self.portal.call(Namespaces().open, spec)
        assert isinstance(session, Resumable)
        return session

    def do(self, call: Callable[[], Awaitable[T]]) -> T:
        return self.portal.call(call)

    @property
    def state(self) -> State:
        return self.path[-1][1]

    def cell(self, code: str, *, timeout_s: float | None = None) -> Outcome:
        """One that is over when this returns, and whose effect is yet to be told to the model."""
        self.number += 1
        self.undone.clear()
        outcome = self.do(lambda: self.session.run(code, timeout_s=timeout_s))
        self.hears(outcome.notices)
        return outcome

    def hears(self, notices: Sequence[str] | None) -> None:
        if BRANCHES_ENDED in (notices or ()):
            for branch, _ in self.branches:
                with pytest.raises(SandboxUnavailable):
                    self.do(lambda branch=branch: branch.run("1"))
            self.branches.clear()

    def leads_to(self, state: State) -> None:
        self.path.append((self.number, state))
        self.agrees()

    def agrees(self) -> None:
        """As far as it can be seen without a cell."""
        assert self.session.path == tuple(number for number, _ in self.path[1:])
        note = self.workspace / NOTE
        assert (note.read_text() if note.exists() else None) == self.state.note
        names = {one.name for one in self.do(self.session.variables)} & {"items", "alias", "x"}
        assert names == self.state.names.keys()

    @rule(what=st.sampled_from(sorted(CELLS)))
    def a_cell(self, what: str) -> None:
        code = CELLS[what].format(n=self.number + 1)
        self.cell(code)
        self.leads_to(self.state.after(code))

    @rule(what=st.sampled_from(sorted(WRITES)))
    def a_cell_writes(self, what: str) -> None:
        outcome = self.cell(f"import os\nwritten = {WRITES[what].format(n=self.number + 1)}")
        note = self.state.note
        if not self.branches:  # while there is one, nobody may write
            note = str(self.number) if what == "makes a file" else None
            assert outcome.status == "ok" or self.state.note is None, outcome
        self.leads_to(State(self.state.names, note))

    @rule(what=st.sampled_from(sorted(COMMANDS)))
    def a_command_writes(self, what: str) -> None:
        self.number += 1
        self.undone.clear()
        script = COMMANDS[what].format(n=self.number)
        ended = self.do(lambda: self.session.command(["/bin/sh", "-c", script], timeout_s=20, cell=self.number))
        self.hears(ended.notices)
        note = self.state.note
        if not self.branches:
            note = str(self.number) if what.startswith("makes") else None
            assert ended.status == "ok" or what.endswith("fails"), ended
        self.leads_to(State(self.state.names, note))

    @rule()
    def a_command_that_is_no_step(self) -> None:
        ended = self.do(lambda: self.session.command(["/bin/sh", "-c", "true"], timeout_s=20))
        assert ended.status == "ok"
        self.agrees()

    @rule(how=st.sampled_from(CRASHES))
    def a_cell_crashes(self, how: str) -> None:
        outcome = self.cell(f"{self.changes()}import os\n{how}")
        assert (outcome.status, outcome.rolled_back, outcome.state_lost) == ("killed", True, False), outcome
        self.agrees()

    @rule()
    def a_cell_cannot_be_interrupted(self) -> None:
        outcome = self.cell(self.changes() + DEAF, timeout_s=0.5)
        assert (outcome.status, outcome.rolled_back, outcome.state_lost) == ("timeout", True, False), outcome
        self.agrees()

    @rule()
    def a_cell_is_interrupted_in_time(self) -> None:
        code = f"x = {self.number + 1}\n"
        outcome = self.cell(f"{code}while True: pass", timeout_s=0.5)
        assert (outcome.status, outcome.rolled_back) == ("timeout", False), outcome
        self.leads_to(self.state.after(code))

    def changes(self) -> str:
        """What must not be seen of a cell that is rolled back."""
        files = "" if self.branches else "open('note.txt', 'a').write('!')\n"
        return f"items = [*globals().get('items', ()), 'wrong']\n{files}"

    @rule()
    def looks(self) -> None:
        assert self.cell(LOOK).value == self.state.seen()
        self.leads_to(self.state)

    @precondition(lambda self: len(self.path) > 1)
    @rule()
    def undoes(self) -> None:
        self.hears(self.do(self.session.undo))
        self.undone.append([self.path.pop()])
        self.agrees()

    @rule(data=st.data())
    def undoes_to(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.path) - 1))
        number = self.path[at][0]
        self.hears(self.do(lambda: self.session.undo(to=number)))
        if self.path[at + 1 :]:
            self.undone.append(self.path[at + 1 :])
        del self.path[at + 1 :]
        self.agrees()

    @precondition(lambda self: self.undone)
    @rule()
    def redoes(self) -> None:
        self.hears(self.do(self.session.redo))
        self.path += self.undone.pop()
        self.agrees()

    @precondition(lambda self: len(self.branches) < 2)
    @rule()
    def forks(self) -> None:
        self.branches.append((self.do(self.session.fork), self.state))

    @precondition(lambda self: self.branches)
    @rule(data=st.data(), what=st.sampled_from(sorted(CELLS)))
    def a_branch_runs(self, data: st.DataObject, what: str) -> None:
        at = data.draw(st.integers(0, len(self.branches) - 1))
        branch, state = self.branches[at]
        code = CELLS[what].format(n=-at)
        self.do(lambda: branch.run(code))
        self.branches[at] = branch, state.after(code)
        assert self.do(lambda: branch.run(LOOK)).value == self.branches[at][1].seen()

    @precondition(lambda self: self.branches)
    @rule(data=st.data())
    def a_branch_is_kept(self, data: st.DataObject) -> None:
        branch, state = self.branches[data.draw(st.integers(0, len(self.branches) - 1))]
        self.do(lambda: self.session.keep(branch))
        self.branches.clear()
        self.undone.clear()
        self.number += 1
        self.leads_to(State(state.names, self.state.note))

    @precondition(lambda self: self.branches)
    @rule(crashes=st.booleans())
    def a_branch_ends(self, crashes: bool) -> None:
        branch, _ = self.branches.pop()
        if crashes:
            assert self.do(lambda: branch.run("import os\nos._exit(1)")).status == "killed"
        self.do(branch.close)

    @rule()
    def goes_on_in_another(self) -> None:
        self.do(self.session.close)
        self.branches.clear()
        self.session = self.opened()
        assert self.session.resumed is not None
        assert self.session.resumed.missing == ()
        assert [one for one in self.session.resumed.labels if one.status == "lost"] == []
        self.agrees()

    def teardown(self) -> None:
        try:
            self.looks()
        finally:
            self.do(self.session.close)
            shutil.rmtree(self.folder)


def test_any_order_of_cells_undo_redo_branches_crashes_and_reopening_agrees_with_plain_python() -> None:
    bounds = settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
    with start_blocking_portal() as Machine.portal:
        run_state_machine_as_test(Machine, settings=bounds)
