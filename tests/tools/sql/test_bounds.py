"""No query takes more rows, bytes, memory or time than it may, and one that nobody waits for any more ends on the server too."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import AsyncGenerator
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.tools.sql.cluster import Cluster

from pinfold.tools import BadCall
from pinfold.tools.sql.arrow_tables import TRUNCATED
from pinfold.tools.sql.sources import Source, WorkerReply, read_address
from pinfold.tools.sql.workers import Workers

pytestmark = [pytest.mark.integration, pytest.mark.anyio]


@pytest.fixture
async def workers() -> AsyncGenerator[Workers]:
    made = Workers()
    yield made
    await made.close()


@pytest.fixture
def shop(postgres: Cluster) -> Source:
    return Source(name="shop", address=read_address(postgres.url()))


@pytest.fixture
def files(tmp_path: Path) -> list[Source]:
    sqlite3.connect(tmp_path / "a.db").close()
    (tmp_path / "a.db").touch()
    import_module("duckdb").connect(str(tmp_path / "b.db")).close()
    return [
        Source(name="a", address=read_address(f"sqlite://{tmp_path}/a.db")),
        Source(name="b", address=read_address(f"duckdb://{tmp_path}/b.db")),
    ]


def table_of(answered: WorkerReply) -> Any:
    return import_module("pyarrow").ipc.open_stream(answered.table).read_all()


MANY = {
    "postgresql": "SELECT n, repeat('x', 100) AS t FROM generate_series(1, 60000) n ORDER BY n",
    "duckdb": "SELECT range AS n, repeat('x', 100) AS t FROM range(1, 60001) ORDER BY n",
    "sqlite": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 60000) "
    "SELECT n, printf('%.100c', 'x') AS t FROM r",
}


async def test_rows_beyond_the_bound_are_cut_and_it_is_said(
    shop: Source, files: list[Source], workers: Workers
) -> None:
    for source in (shop, *files):
        cut = await workers.ask(replace(source, max_rows=1000), MANY[source.kind])
        table = table_of(cut)
        assert table.column("n").to_pylist() == list(range(1, 1001)), source.kind
        assert "more rows than the 1,000" in cut.text
        assert "more rows than the 1,000" in table.schema.metadata[TRUNCATED].decode()
        whole = await workers.ask(replace(source, max_rows=60_000), MANY[source.kind])
        assert table_of(whole).num_rows == 60_000
        assert table_of(whole).schema.metadata is None
        assert "CUT" not in whole.text


async def test_bytes_beyond_the_bound_are_cut_and_it_is_said(
    shop: Source, files: list[Source], workers: Workers
) -> None:
    for source in (shop, *files):
        cut = await workers.ask(replace(source, max_bytes=4 << 20), MANY[source.kind])
        table = table_of(cut)
        assert (3 << 20) < table.nbytes <= (4 << 20), source.kind
        assert "more than the 4 MB" in cut.text
        assert "more than the 4 MB" in table.schema.metadata[TRUNCATED].decode()
        assert table.column("n").to_pylist() == list(range(1, table.num_rows + 1))


async def test_what_the_model_is_told_stays_short_whatever_comes(shop: Source, workers: Workers) -> None:
    columns = ", ".join(f"repeat('long name ', 500) AS \"{'c' * 50}{at}\"" for at in range(300))
    told = (await workers.ask(shop, f"SELECT {columns} FROM generate_series(1, 100)")).text
    assert len(told) < 15_000
    assert "and 270 more" in told
    assert "95 more" in told


@pytest.mark.slow
async def test_a_value_larger_than_memory_ends_in_words_and_the_next_query_works(
    shop: Source, workers: Workers
) -> None:
    with pytest.raises(BadCall, match=r"memory"):
        await workers.ask(replace(shop, max_bytes=1 << 20), "SELECT repeat('x', 500000000)")
    assert (await workers.ask(shop, "SELECT 1")).text


async def test_a_query_that_takes_too_long_is_ended(shop: Source, files: list[Source], workers: Workers) -> None:
    endless = {
        "postgresql": "SELECT pg_sleep(50)",
        "sqlite": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "duckdb": "SELECT count(*) FROM range(100000000000) a",
    }
    for source in (shop, *files):
        with anyio.fail_after(45), pytest.raises(BadCall, match=r"timeout|longer than"):
            await workers.ask(replace(source, timeout_s=0.5), endless[source.kind])


async def test_a_query_that_nobody_waits_for_ends_on_the_server(
    postgres: Cluster, shop: Source, workers: Workers
) -> None:
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%4711%' AND state = 'active' AND pid <> pg_backend_pid()"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workers.ask, shop, "SELECT pg_sleep(50), 4711")
        with anyio.fail_after(45):
            while await anyio.to_thread.run_sync(postgres.ask, running) != "1":
                pass
        tasks.cancel_scope.cancel()
    assert postgres.ask(running) == "0"
    assert (await workers.ask(shop, "SELECT 1")).text


async def test_queries_run_side_by_side_up_to_a_number(shop: Source, workers: Workers) -> None:
    told: list[str] = []

    async def one(at: int) -> None:
        told.append((await workers.ask(shop, f"SELECT pg_sleep(0.2), {at} AS at")).text)

    with anyio.fail_after(45):
        async with anyio.create_task_group() as tasks:
            for at in range(10):
                tasks.start_soon(one, at)
    assert len(told) == 10


async def test_a_process_that_dies_is_said_and_replaced(shop: Source, workers: Workers) -> None:
    await workers.ask(shop, "SELECT 1")
    (pid,) = workers.idle
    os.kill(pid, signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:

        async def asked() -> None:
            with pytest.raises(BadCall, match="ended before it answered"):
                await workers.ask(shop, "SELECT 2")

        tasks.start_soon(asked)
        await anyio.wait_all_tasks_blocked()
        os.kill(pid, signal.SIGKILL)
    assert "2" in (await workers.ask(shop, "SELECT 2")).text


async def test_a_connection_that_was_cut_is_made_anew(postgres: Cluster, shop: Source, workers: Workers) -> None:
    await workers.ask(shop, "SELECT 1")
    postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pinfold'")
    assert "1 row" in (await workers.ask(shop, "SELECT 3")).text


async def test_nothing_is_left_when_they_are_closed(shop: Source, files: list[Source]) -> None:
    workers = Workers()
    for source in (shop, *files):
        await workers.ask(source, "SELECT 1")
    pids = workers.idle
    assert len(pids) == 3
    await workers.close()
    assert not any(os.access(f"/proc/{pid}", os.F_OK) for pid in pids)


@pytest.mark.parametrize("missing", ["sqlglot", "pyarrow", "duckdb"])
async def test_what_is_not_installed_is_said_in_one_line_with_the_command(
    files: list[Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / f"{missing}.py").write_text(f"raise ModuleNotFoundError('none', name={missing!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    workers = Workers()
    try:
        with pytest.raises(BadCall) as caught:
            await workers.ask(files[1], "SELECT 1")
    finally:
        await workers.close()
    assert str(caught.value) == (
        f"reading duckdb needs {missing}, which is not installed; the user must: pinfold extras add sql"
    )
