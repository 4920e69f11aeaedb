"""A server of weights for the tests of local models, and real weights with what runs them."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
import uv
from tests.model.local.registry import Registry

from pinfold.model.errors import PullFailed, RuntimeMissing
from pinfold.model.local.builtin import runtime
from pinfold.model.local.weights import pull, weights_named


@pytest.fixture
def registry() -> Generator[Registry]:
    registry = Registry()
    yield registry
    registry.close()


# Looked up now: a test sees folders of its own only.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pinfold-tests"


@pytest.fixture(scope="session")
def small() -> Path:
    """The weights of SmolLM2-135M: too small to be of use, but a real model. Fetched once for this user."""
    try:
        return anyio.run(pull, weights_named("smollm2"), _CACHE / "models")
    except PullFailed as error:
        pytest.skip(f"SmolLM2 cannot be fetched: {error}")


@pytest.fixture(scope="session")
def llama() -> Path:
    """The folder llama.cpp is imported from. Fetched once for this user."""
    try:
        made = anyio.run(runtime, _CACHE / "runtimes", Path(uv.find_uv_bin()), print)
    except RuntimeMissing as error:
        pytest.skip(f"llama.cpp cannot be fetched: {error}")
    assert made is not None, "the tests' own environment has xllamacpp"
    return made


@pytest.fixture
def data(tmp_path: Path, small: Path, llama: Path) -> Path:
    """A data folder that has it all."""
    return data_folder(tmp_path / "xdg" / "data" / "pinfold", small, llama)


def data_folder(folder: Path, small: Path, llama: Path) -> Path:
    (folder / "models").mkdir(parents=True, mode=0o700)
    (folder / "runtimes").mkdir(mode=0o700)
    (folder / "models" / small.name).symlink_to(small)
    (folder / "runtimes" / llama.name).symlink_to(llama)
    return folder
