"""The one event loop we use, and a session ready to run."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pinfold.sandbox import Limits, Session, open_session

CHECKOUT = Path(__file__).parents[2]
# The hostile programs are shared with bench/, which no wheel has.
sys.path.insert(0, str(CHECKOUT))
collect_ignore = [] if (CHECKOUT / "bench").exists() else ["test_escapes.py"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[Session]:
    async with open_session(tmp_path, "unsafe-local", limits=Limits(cell_s=30)) as session:
        yield session
