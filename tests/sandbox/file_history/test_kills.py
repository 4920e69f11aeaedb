"""Whoever keeps the history may be killed at any moment: the next one has every state."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sandbox.file_history.cells import let_settle, tree

from pinfold.sandbox.file_history.versions import Versions

pytestmark = [pytest.mark.safety, pytest.mark.alone]
KILLS = int(os.environ.get("KILLS", "6"))
FILES = 40
STATE_S = 60.0
"""For an owner to tell its first state, on a busy machine."""
OWNER = """
import random, shutil, sys
from pathlib import Path
from tests.sandbox.file_history.cells import tree
from tests.sandbox.file_history.test_kills import said
from pinfold.sandbox.file_history.versions import Versions

workspace, store, told, seed = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
chance = random.Random(seed)
versions = Versions(workspace, store, shared=store.with_name('shared'), settled_s=0)
versions.begin()
versions.fill()
with told.open("a") as file:
    while True:
        cell = max(versions.states) + 1
        versions.before(cell)
        for number in chance.sample(range(40), 12):
            path = workspace / f"{number % 7}" / f"{number}"
            if path.exists() and chance.random() < 0.4:
                path.unlink()
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(chance.randbytes(chance.choice((10, 1000, 50_000))))
        if chance.random() < 0.3 and (workspace / "3").exists():
            shutil.rmtree(workspace / "3")
        versions.after(cell)
        file.write(said(cell, workspace))
        file.flush()
        if chance.random() < 0.5:
            versions.restore(chance.choice(versions.states))
"""


def said(cell: int, workspace: Path) -> str:
    """One line, short enough to be written whole or not at all."""
    return f"{cell} {hashlib.sha256(repr(sorted(tree(workspace).items())).encode()).hexdigest()}\n"


def test_after_any_kill_every_state_that_was_told_comes_back(workspace: Path, tmp_path: Path) -> None:
    chance = random.Random(20261115)
    store, told = tmp_path / "store", tmp_path / "told"
    for number in range(FILES):
        (workspace / f"{number % 7}").mkdir(exist_ok=True)
        (workspace / f"{number % 7}" / f"{number}").write_bytes(chance.randbytes(1000))
    let_settle(workspace)
    told.write_text(said(0, workspace))
    for kill in range(KILLS):
        path = os.pathsep.join(filter(None, sys.path))
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(workspace), str(store), str(told), str(kill)],
            env={**os.environ, "PYTHONPATH": path},
        )
        before, give_up_at = told.stat().st_size, time.monotonic() + STATE_S
        while told.stat().st_size == before and time.monotonic() < give_up_at:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.6)
        owner.kill()
        assert owner.wait() == -9
        states = {int(cell): it for cell, it in map(str.split, told.read_text().splitlines())}
        versions = Versions(workspace, store, shared=tmp_path / "shared", settled_s=0)
        versions.begin()
        versions.fill()
        assert states.keys() <= set(versions.states)
        for state in chance.sample(sorted(states), min(5, len(states))):
            restored = versions.restore(state)
            assert (restored.missed, restored.left, restored.aside) == ((), (), ())
            assert said(state, workspace).split()[1] == states[state]
        versions.close()
        assert len(states) > kill
