"""Warming up before a fork: as much as is there, one thread, no trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pinfold

pytestmark = pytest.mark.integration

GUEST = Path(pinfold.__file__).parent / "guest"
INSIDE = """
import importlib, sys, types
package = types.ModuleType("_pinfold_guest")
package.__path__ = [sys.argv[1]]
sys.modules["_pinfold_guest"] = package
"""
"""For a script that imports modules of the guest, whose folder is its argument."""
PROGRAM = """
import os
main, environment = sys.modules["__main__"], dict(os.environ)
importlib.import_module("_pinfold_guest.startup.zygote").warm()
found = [name for name in ("numpy", "pandas", "IPython") if name in sys.modules]
same = main is sys.modules["__main__"] and environment == dict(os.environ)
print(len(os.listdir("/proc/self/task")), same, *found, flush=True)
if os.fork() == 0:
    names = ("cells.runner", "cells.interrupts", "cells.streams")
    cells, interrupts, streams = (importlib.import_module(f"_pinfold_guest.{name}") for name in names)
    engine = cells.Engine(interrupts.Interrupts(lambda: False), streams.Streams())
    ran = engine.run("import pandas as pd\\nframe = pd.DataFrame({'a': [1]})\\n%time 1\\nframe")
    bound = get_ipython().user_ns is engine.namespace
    print(ran.status, [sorted(one) for one in ran.displays], bound, flush=True)
    os._exit(0)
os.wait()
"""


def warmed(python: str, home: Path) -> list[str]:
    done = subprocess.run(
        [python, "-I", "-c", INSIDE + PROGRAM, str(GUEST)],
        capture_output=True,
        text=True,
        timeout=200,
        env={"HOME": str(home), "LANG": "C.UTF-8"},
        check=False,
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="it counts threads in /proc")
def test_it_leaves_one_thread_no_file_and_a_shell_for_the_session(data_python: Path, tmp_path: Path) -> None:
    lines = warmed(str(data_python), tmp_path)
    assert lines[0] == "1 True numpy pandas IPython"
    assert lines[-1] == "ok [['text/html', 'text/plain']] True"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="it counts threads in /proc")
def test_it_does_what_it_can_where_packages_are_missing(tmp_path: Path) -> None:
    bare = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if not bare.exists():
        pytest.skip(f"{bare} is not here")
    assert warmed(str(bare), tmp_path)[0].split()[:2] == ["1", "True"]
