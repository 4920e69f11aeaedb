"""The experiments are shared with bench/, which is run by hand and for longer."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.crashing.kills import crew
from bench.crashing.launch import Forkserver


@pytest.fixture(scope="session")
def servers() -> Generator[list[Forkserver]]:
    with crew() as forkservers:
        yield forkservers
