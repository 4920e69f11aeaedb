"""Databases for the tests: a PostgreSQL for all of them, files for each."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.tools.sql.cluster import Cluster, NoPostgres, cluster
from tests.tools.sql.databases import FileWorld, Places, PostgresWorld, World

PASSWORD = "canary-Passw0rd-8271"


@pytest.fixture(scope="session")
def postgres() -> Generator[Cluster]:
    try:
        with cluster(PASSWORD) as made:
            yield made
    except NoPostgres as why:
        pytest.skip(str(why))


@pytest.fixture(autouse=True)
def own_environment() -> Generator[None]:
    """Drivers are told of passwords by the environment; the tests' own is as before afterwards."""
    before = dict(os.environ)
    yield
    for name in [name for name in os.environ if name.startswith("PG")]:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[World]:
    """Of the kind that the test is parametrized with."""
    kind: str = request.param
    if kind == "postgresql":
        made: Cluster = request.getfixturevalue("postgres")
        folder = made.folder / f"w{len(list(made.folder.iterdir()))}"
        folder.mkdir(mode=0o755)
        places = Places(folder)
        places.out.chmod(0o777)
        shop = PostgresWorld(made, places)
        shop.seed()
        yield shop
        shop.close()
        return
    places = Places(tmp_path)
    files = FileWorld("sqlite" if kind == "sqlite" else "duckdb", tmp_path, places)
    files.seed()
    yield files
