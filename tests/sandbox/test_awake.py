"""Waiting for what comes at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from pinfold.sandbox._awake import Ear, core

pytestmark = pytest.mark.integration
if sys.platform != "linux":
    pytest.skip("cores are chosen on Linux alone", allow_module_level=True)

ROUNDS = 40
ECHO = """
import os, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as line:
    os.sched_setaffinity(0, {int(sys.argv[2])})
    while said := line.recv(1):
        for _ in range(100_000): pass
        line.send(said)
"""


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_is_there_is_heard_at_once(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    theirs.send(b"x")
    assert Ear(ours.fileno()).hears(0.0)


def test_the_end_of_the_line_is_heard(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    theirs.close()
    assert Ear(ours.fileno()).hears(0.0)


def test_silence_is_waited_for_as_long_as_said_and_not_much_longer(
    line: tuple[socket.socket, socket.socket],
) -> None:
    begun = time.perf_counter()
    assert not Ear(line[0].fileno()).hears(0.002)
    assert 0.002 <= time.perf_counter() - begun < 10


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_who_waits_leaves_the_core_of_who_answers_and_may_use_all_of_them_afterwards(
    line: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = line
    allowed = os.sched_getaffinity(0)
    shared = min(allowed)
    argv = [sys.executable, "-c", ECHO, str(theirs.fileno()), str(shared)]
    with subprocess.Popen(argv, pass_fds=[theirs.fileno()]):
        theirs.close()
        ear = Ear(ours.fileno())
        apart = 0
        for _ in range(ROUNDS):
            os.sched_setaffinity(0, {shared})
            os.sched_setaffinity(0, allowed)
            ours.send(b"x")
            assert ear.hears(60.0)
            ours.recv(1)
            apart += core() != shared
        ours.close()
    assert (
        apart > ROUNDS / 4
    )  # nearly all where nothing else runs; where all cores are busy it is soon moved back
    assert os.sched_getaffinity(0) == allowed
