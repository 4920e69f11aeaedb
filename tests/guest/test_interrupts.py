"""An interrupt comes as a signal and is told as well, in either order; each raises once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from pinfold.guest.cells.interrupts import Interrupts

pytestmark = pytest.mark.unit


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    handler, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    made = Interrupts(lambda: False)
    yield made
    signal.signal(signal.SIGINT, handler)
    sys.unraisablehook = hook


def begin(interrupts: Interrupts) -> None:
    interrupts.begin()
    interrupts.arm_cell()


def signalled() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Dropping:
    """Python drops an exception that is raised while one of these is deleted."""

    def __del__(self) -> None:
        signalled()


def told(interrupts: Interrupts) -> None:
    interrupts.hold()
    interrupts.expect_signal()
    interrupts.release()


def test_a_signal_raises_and_what_is_told_of_it_later_raises_nothing(interrupts: Interrupts) -> None:
    begin(interrupts)
    with pytest.raises(KeyboardInterrupt):
        signalled()
    told(interrupts)


def test_what_is_told_raises_and_its_signal_later_raises_nothing(interrupts: Interrupts) -> None:
    begin(interrupts)
    with pytest.raises(KeyboardInterrupt):
        told(interrupts)
    begin(interrupts)
    signalled()


def test_an_interrupt_right_after_one_that_was_told_late_is_not_taken_for_it(interrupts: Interrupts) -> None:
    begin(interrupts)
    with pytest.raises(KeyboardInterrupt):
        signalled()
    told(interrupts)
    begin(interrupts)
    with pytest.raises(KeyboardInterrupt):
        signalled()


def test_an_interrupt_that_python_drops_is_raised_again(interrupts: Interrupts) -> None:
    begin(interrupts)
    Dropping()
    with pytest.raises(KeyboardInterrupt):
        threading.Event().wait(60)


def test_an_announced_interrupt_that_python_drops_is_raised_and_the_next_one_too(interrupts: Interrupts) -> None:
    def drop_and_tell() -> None:
        Dropping()
        told(interrupts)

    begin(interrupts)
    with pytest.raises(KeyboardInterrupt):
        drop_and_tell()
    begin(interrupts)
    with pytest.raises(KeyboardInterrupt):
        signalled()
