"""One world a test: an allowed place, forbidden ones, and where the proxy's socket goes."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from tests.net.places import World, world


@pytest.fixture
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
async def places() -> AsyncGenerator[World]:
    async with world() as made:
        yield made
