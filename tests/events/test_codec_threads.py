"""Types may be used for the first time by several threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit
PROGRAM = """
import os, sys, threading
from pinfold.events import SessionChanged, TurnEnded, UserSpoke, decode, encode

bodies = [encode(event) for event in (SessionChanged(title="x"), UserSpoke(turn="t", text="a"), TurnEnded(turn="t", text="b"))]
kinds = ("SessionChanged", "UserSpoke", "TurnEnded")

def read(together):
    together.wait()
    for kind, body in zip(kinds, bodies):
        decode(kind, body)

crashed = 0
for _ in range(80):
    if not (pid := os.fork()):
        sys.setswitchinterval(1e-5)
        together = threading.Barrier(3)
        threads = [threading.Thread(target=read, args=(together,)) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(0)
    crashed += os.waitpid(pid, 0)[1] != 0
print(crashed)
"""


def test_threads_that_are_first_to_use_a_type_do_not_crash() -> None:
    # Where every thread had msgspec describe the types, one process in four crashed.
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"
