"""Warming up before a fork: as much as is there, one thread, no trace."""

from __future__ import annotations

import platform
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
found = importlib.import_module("_pinfold_guest.warm").warm()
same = main is sys.modules["__main__"] and environment == dict(os.environ)
print(len(os.listdir("/proc/self/task")), same, *found, flush=True)
if os.fork() == 0:
    names = ("cells", "interrupts", "streams")
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


LAYOUT = """
import gc, os
layout, kernel = (importlib.import_module(f"_pinfold_guest.{name}") for name in ("layout", "kernel"))

def huge():
    with open("/proc/self/smaps_rollup") as table:
        return next(int(line.split()[1]) >> 10 for line in table if line.startswith("AnonHugePages"))

def arenas():
    with open("/proc/self/maps") as table:
        spans = [[int(part, 16) for part in line.split()[0].split("-")] for line in table if " rw-p " in line]
    return max(end - start for start, end in spans) >> 20

before = arenas()
room = layout.gathered()
widest = arenas()
held = [bytes(100) for _ in range(100_000)]
kept = [bytes(3000) for _ in range(1000)]
gaps = kept[::2]
del kept, room
kernel.trim()
end = kernel.heap_end()
layout.settled()
most = layout.ARENAS - 2
print(before < most <= widest, huge())
print(all(kernel.allocated(size) >= end for size in (2000, 3000, 5000)), arenas() < most)
print(held == [bytes(100)] * 100_000 and all(one == bytes(3000) for one in gaps))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at maps in /proc")
def test_what_is_loaded_lies_together_and_what_was_not_needed_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", INSIDE + LAYOUT, str(GUEST)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    together, filled, same = done.stdout.splitlines() or [done.stderr] * 3
    assert together.startswith("True")
    if tuple(map(int, platform.release().split(".")[:2])) >= (6, 1):
        assert int(together.split()[1]) >= 4
    assert filled == "True True"
    assert same == "True"


CODE = """
import os, resource, sqlite3, time
layout, kernel = (importlib.import_module(f"_pinfold_guest.{name}") for name in ("layout", "kernel"))

def use():
    sqlite3.connect(":memory:").execute("create table t as select 1 as one").fetchall()

def faults(before):
    told, tell = os.pipe()
    if os.fork() == 0:
        for part in before:
            kernel.populate(*part)
        count = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        use()
        os.write(tell, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - count).encode())
        os._exit(0)
    os.wait()
    return int(os.read(told, 99))

use()
layout.settled()
idle, used = layout.code_of(lambda: None), layout.code_of(use)
size = lambda code: sum(size for _, size in code)
print(0 < size(idle) < size(used), faults(used) < faults(idle))
with open("/proc/self/maps") as table:
    rows = [line.split() for line in table]
pairs = zip(rows, rows[1:])
print(layout.code_of(lambda: time.sleep(60), 0.1))
print(sum(b[1] == "---p" and a[4] == b[4] != "0" and "w" not in a[1] for a, b in pairs))
use()
"""


@pytest.mark.skipif(
    sys.platform != "linux" or tuple(map(int, platform.release().split(".")[:2])) < (5, 14),
    reason="the kernel maps nothing ahead",
)
def test_code_that_is_known_to_run_is_mapped_ahead_and_libraries_have_no_gaps() -> None:
    command = [sys.executable, "-I", "-c", INSIDE + CODE, str(GUEST)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == "True True\n[]\n0\n", done.stderr


IMMORTAL = """
import ctypes, json
immortal = importlib.import_module("_pinfold_guest.immortal")
count = lambda one: ctypes.c_uint64.from_address(id(one)).value
looked_at = lambda: [json, json.dumps, json.dumps.__code__.co_consts, memoryview.__dict__["tobytes"], range.__mro__]
before = [count(one) == immortal.MARK for one in looked_at()]
immortal.immortalise()
after = [count(one) == immortal.MARK for one in looked_at()]
print(immortal.is_possible(), all(before), all(after), count([]) == immortal.MARK)
"""


def test_what_no_collector_knows_of_is_made_immortal_too(data_python: Path) -> None:
    command = [str(data_python), "-I", "-c", INSIDE + IMMORTAL, str(GUEST)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if done.stdout.startswith("False"):
        pytest.skip("not with this Python")
    assert done.stdout == "True False True False\n", done.stderr
