"""An interrupt comes as a signal and is told as well, in either order; each raises once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from pinfold.guest.cells.interrupts import Interrupts

pytestmark = pytest.mark.unit


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = signal.getsignal(signal.SIGINT)
    made = Interrupts(lambda: False)
    yield made
    signal.signal(signal.SIGINT, before)


def begin(interrupts: Interrupts) -> None:
    interrupts.begin()
    interrupts.arm_cell()


def signalled() -> None:
    os.kill(os.getpid(), signal.SIGINT)


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
