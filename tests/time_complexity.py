"""How long work takes, told apart from how busy the machine is: time of this process, and growth rather than seconds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SIZES = (10_000, 100_000)
MARGIN = 4
TRIES = 4
NOTHING_S = 0.1
"""Less is not felt, and says little about growth while other programs use the processor's caches."""


def took_s(work: Callable[[], object]) -> float:
    gc.disable()  # a collection walks everything the tests before this one have left
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()


def assert_linear(work: Callable[[T], object], made: Callable[[int], T], sizes: tuple[int, int] = SIZES) -> None:
    """Fails where time grows clearly faster than what is given: ten times as much may take forty times as long."""
    small, large = map(made, sizes)
    allowed = MARGIN * sizes[1] / sizes[0]
    little = min(took_s(lambda: work(small)) for _ in range(3))  # whatever is made once is made in the first
    much = float("inf")
    for _ in range(TRIES):
        much = min(much, took_s(lambda: work(large)))
        if much < max(NOTHING_S, allowed * little):
            return
        little = min(little, took_s(lambda: work(small)))
    raise AssertionError(
        f"{sizes[1] / sizes[0]:g} times as much took {much / little:.0f} times as long: {little:.4f} s and {much:.4f} s"
    )


def repeated(piece: str) -> Callable[[int], str]:
    """A text of any length, made of the piece alone."""
    return lambda size: (piece * (size // len(piece) + 1))[:size]
