"""The one event loop we use, and a session ready to run."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

# The hostile programs are shared with bench/.
sys.path.insert(0, str(Path(__file__).parents[2]))

from pinfold.sandbox import Limits, Session, open_session


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[Session]:
    async with open_session(tmp_path, "unsafe-local", limits=Limits(cell_s=30)) as session:
        yield session
