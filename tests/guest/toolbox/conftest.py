"""Memory that a test takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Generator

import pytest


@pytest.fixture
def peak() -> Generator[Callable[[], int]]:
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
