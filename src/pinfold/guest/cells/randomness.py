"""Random numbers that are nobody else's: of a session, and of a branch of one."""

from __future__ import annotations

import random
import sys

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any


def reseed(namespace: dict[str, object] | None = None) -> None:
    """The generators of `random` and numpy, and those that variables hold."""
    random.seed()
    numbers: Any = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    held: list[Any] = list((namespace or {}).values())
    for value in held:
        if type(value) is random.Random:
            value.seed()
        elif numbers is not None and type(value) is numbers.Generator:
            generator = value.bit_generator
            generator.state = type(generator)().state
        elif numbers is not None and type(value) is numbers.RandomState:
            value.seed()
