"""A session that really is a sandbox, and a server to talk to."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from tests.tools.real_services import Server, serving

from pinfold.sandbox import Session, open_session
from pinfold.sandbox.providers.namespaces import Namespaces


@pytest.fixture
async def session(workspace: Path) -> AsyncGenerator[Session]:
    if sys.platform != "linux":
        pytest.skip("namespaces are Linux's")
    async with open_session(workspace, Namespaces()) as session:
        yield session


@pytest.fixture
def server() -> Generator[Server]:
    with serving() as server:
        yield server
