"""The one event loop we use, sessions ready to run, and the Python with the data packages."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pinfold.sandbox import Limits, Session, Spec, open_session
from pinfold.sandbox.providers.namespaces import Namespaces

DATA_PYTHON = "PINFOLD_TEST_DATA_PYTHON"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[Session]:
    async with open_session(tmp_path, "unsafe-local", limits=Limits(cell_s=30)) as session:
        yield session


@pytest.fixture(scope="session")
def data_python() -> Path:
    python = Path(os.environ.get(DATA_PYTHON, ""))
    if not python.is_file():
        pytest.skip(f"no Python with pandas, matplotlib and IPython: set {DATA_PYTHON} to one")
    return python


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Where the sandbox's own user may go too."""
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
async def data(workspace: Path, data_python: Path) -> AsyncGenerator[Session]:
    """A session of the real sandbox with the data packages."""
    session = await Namespaces(python=data_python).open(Spec(workspace=workspace, limits=Limits(cell_s=40, start_s=40)))
    try:
        yield session
    finally:
        await session.close()
