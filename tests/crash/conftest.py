"""The experiments are shared with bench/, which is run by hand and for longer."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.crash_suite.kills import crew
from bench.crash_suite.launch import Forkserver


@pytest.fixture(scope="session")
def servers() -> Generator[list[Forkserver]]:
    with crew() as forkservers:
        yield forkservers
