"""A server of weights for the tests of local models."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from tests.model.local.registry import Registry


@pytest.fixture
def registry() -> Generator[Registry]:
    registry = Registry()
    yield registry
    registry.close()
