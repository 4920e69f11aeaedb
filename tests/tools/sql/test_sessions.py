"""`servers.sql` in real sessions: judged, on record, tainting, and with no password anywhere but on the host."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.app.test_session_tools import Script, agent_of, seen, turn
from tests.tools.sql.cluster import Cluster

from pinfold import Agent
from pinfold.app.trust.secrets import Secrets
from pinfold.events import ActionAllowed, ActionDenied, ActionFinished, ApprovalRequested, Event, Mode, encode
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Configure = Callable[[str], None]
QUERY = """
from servers.sql import query
t = query("shop", "SELECT * FROM goods ORDER BY id")
type(t).__module__ + "." + type(t).__name__, t.num_rows, t.to_pydict()
"""


def calls(tool: str, /, **args: Any) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "args": args}]}


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Writes the user's own configuration."""

    def write(text: str) -> None:
        folder = tmp_path / "xdg" / "config" / "pinfold"
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        (folder / "config.toml").write_text(text)

    return write


@pytest.fixture
def shop(tmp_path: Path, configure: Configure) -> Path:
    """A small database beside the workspace."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE goods (id integer, name text); INSERT INTO goods VALUES (1, 'nail'), (2, 'saw')"
    )
    connection.close()
    configure(f'[data.shop]\nurl = "sqlite://{path}"\n')
    return path


def finished(events: list[Event]) -> list[ActionFinished]:
    return [event for event in events if isinstance(event, ActionFinished)]


async def test_rows_of_postgresql_are_a_table_in_the_session_and_equal_to_the_last_digit(
    workspace: Path, postgres: Cluster, configure: Configure, data_python: Path, script: Script, cell: Any
) -> None:
    postgres.run(
        """
        DROP TABLE IF EXISTS kinds;
        CREATE TABLE kinds (n numeric(12, 4), m numeric, at timestamptz, j jsonb, a int[], u uuid, b bytea, t text);
        INSERT INTO kinds VALUES (1234.5678, 0.1, '2024-01-01 12:00:00.000001+02', '{"a": 1}', '{1,null}',
          '5b1c8b1e-0000-4000-8000-000000000001', '\\x00ff', 'ä'), (null, null, null, null, null, null, null, null);
        """
    )
    configure(f'[data.shop]\nurl = "{postgres.url()}"\n')
    code = """
from decimal import Decimal
import pandas as pd, uuid, json
from servers.sql import query
t = query("shop", "SELECT * FROM kinds ORDER BY n")
f = t.to_pandas()
row = f.iloc[0]
assert row.n == Decimal("1234.5678") and row.m == Decimal("0.1"), row
assert row["at"] == pd.Timestamp("2024-01-01 10:00:00.000001", tz="UTC"), row["at"]
assert json.loads(row.j) == {"a": 1} and list(t.to_pylist()[0]["a"]) == [1, None]
assert uuid.UUID(row.u).int and row.b == b"\\x00\\xff" and row.t == "ä"
assert f.iloc[1].isna().all() and len(query("shop", "SELECT * FROM kinds WHERE false")) == 0
print(type(t).__name__, len(f), "equal")
"""
    async with Agent(
        model=script(cell(code)), workspace=workspace, sandbox=Namespaces(data_python), ephemeral=True
    ) as agent:
        assert seen(await turn(agent))[-1] == "Table 2 equal\n"


@pytest.mark.parametrize("mode", ["read-only", "auto", "ask", "full"])
async def test_reading_a_configured_database_is_never_asked_about(
    workspace: Path, shop: Path, data_python: Path, script: Script, cell: Any, mode: Mode
) -> None:
    model = script(cell(QUERY))
    async with Agent(
        model=model, workspace=workspace, sandbox=Namespaces(data_python), ephemeral=True, mode=mode
    ) as agent:
        events = await turn(agent)
    assert not [event for event in events if isinstance(event, ApprovalRequested | ActionDenied)]
    assert any(isinstance(event, ActionAllowed) and "pure" in event.rule for event in events)
    assert "('pyarrow.lib.Table', 2, {'id': [1, 2], 'name': ['nail', 'saw']})" in seen(events)[-1]


async def test_a_session_that_has_read_a_database_is_private_and_has_read_others_words(
    workspace: Path, shop: Path, script: Script
) -> None:
    model = script(calls("sql.databases"), calls("sql.query", name="shop", sql="SELECT 1"), calls("sql.tables"))
    async with agent_of(workspace, model) as agent:
        events = await turn(agent)
    assert [(one.private, one.untrusted) for one in finished(events)] == [(False, False), (True, True), (True, True)]
    listed, _, tables = seen(events)
    assert listed == '[{"name":"shop","kind":"sqlite"}]'
    assert "shop: main.goods (table): id INTEGER, name TEXT" in tables


async def test_once_read_nothing_leaves_unseen(workspace: Path, shop: Path, script: Script) -> None:
    away = calls("fetch", url="http://127.0.0.1:1/x")
    query = calls("sql.query", name="shop", sql="SELECT * FROM goods")
    async with agent_of(workspace, script(away, query, away, query), allow_hosts=["127.0.0.1:1"]) as agent:
        events = await turn(agent)
    refused = [event.reason for event in events if isinstance(event, ActionDenied)]
    asked = [event.reason for event in events if isinstance(event, ApprovalRequested)]
    assert len(asked) == 1, refused
    assert "needs your OK" in asked[0]
    # And the database itself may still be asked: it is the user's own, as the model is.
    assert "2 rows" in seen(events)[-1]


async def test_a_refusal_is_an_exception_with_the_reason(
    workspace: Path, shop: Path, data_python: Path, script: Script, cell: Any
) -> None:
    code = """
from servers.sql import query
for name, sql in (("shop", "DELETE FROM goods"), ("shpo", "SELECT 1"), ("shop", "SELECT * FROM nothere")):
    try:
        query(name, sql)
    except Exception as error:
        print(type(error).__name__, error)
"""
    async with agent_of(workspace, script(cell(code))) as agent:
        said = seen(await turn(agent))[-1]
    assert "DELETE is not for reading" in said
    assert "did you mean 'shop'" in said
    assert "no such table: nothere" in said
    assert sqlite3.connect(shop).execute("SELECT count(*) FROM goods").fetchone() == (2,)


@pytest.mark.parametrize(
    "way",
    ["in the address", pytest.param("plain", marks=pytest.mark.slow), pytest.param("kept", marks=pytest.mark.slow)],
)
async def test_no_event_and_no_message_holds_the_password(
    workspace: Path, postgres: Cluster, configure: Configure, script: Script, cell: Any, way: str
) -> None:
    password = postgres.password
    bare = postgres.url().replace(f":{password}@", "@")
    if way == "kept":
        Secrets().set("SHOP_PW", password, ["127.0.0.1"])
    text = {
        "in the address": f'[data.shop]\nurl = "{postgres.url()}"\n',
        "plain": f'[data.shop]\nurl = "{bare}"\npassword = "{password}"\n',
        "kept": f'[data.shop]\nurl = "{bare}"\npassword = "${{secret:SHOP_PW}}"\n',
    }[way]
    configure(text + f'[data.wrong]\nurl = "{postgres.url("nosuchdb")}"\n')
    tries = [
        calls("sql.query", name="shop", sql="SELECT session_user"),
        calls("sql.query", name="wrong", sql="SELECT 1"),
        calls("sql.query", name="shop", sql=f"SELECT '{password}' AS guessed"),
        calls("sql.tables"),
        cell("import os; print(dict(os.environ)); print(open('/proc/self/environ', 'rb').read())"),
    ]
    async with agent_of(workspace, script(*tries)) as agent:
        events = await turn(agent)
    assert "boss" in seen(events)[0]
    assert "nosuchdb" in seen(events)[1]
    assert len(events) > 15
    assert [encode(event) for event in events if password in encode(event)] == []
    assert next(one.to for event in finished(events) for one in event.sent) == f"127.0.0.1:{postgres.port}"


async def test_a_secret_for_another_host_is_not_given_to_this_one(
    workspace: Path, postgres: Cluster, configure: Configure, script: Script
) -> None:
    Secrets().set("SHOP_PW", postgres.password, ["db.example.org"])
    bare = postgres.url().replace(f":{postgres.password}@", "@")
    configure(f'[data.shop]\nurl = "{bare}"\npassword = "${{secret:SHOP_PW}}"\n')
    async with agent_of(workspace, script(calls("sql.query", name="shop", sql="SELECT 1"))) as agent:
        said = seen(await turn(agent))[-1]
    assert "pinfold secret set SHOP_PW --host 127.0.0.1" in said


async def test_a_file_in_the_workspace_is_opened_without_following_what_code_put_there(
    workspace: Path, tmp_path: Path, configure: Configure, script: Script, cell: Any
) -> None:
    for path, word in ((workspace / "shop.db", "nail"), (tmp_path / "private.db", "canary-of-others")):
        connection = sqlite3.connect(path)
        connection.executescript(f"CREATE TABLE goods (name text); INSERT INTO goods VALUES ('{word}')")
        connection.close()
    configure(f'[data.shop]\nurl = "sqlite://{workspace}/shop.db"\n')
    query = calls("sql.query", name="shop", sql="SELECT * FROM goods")
    model = script(
        query,
        cell("open('shop.db-wal', 'wb').write(b'x' * 64)"),
        query,
        cell(
            f"import os; os.remove('shop.db-wal'); os.remove('shop.db'); os.symlink('{tmp_path}/private.db', 'shop.db')"
        ),
        query,
    )
    async with agent_of(workspace, model) as agent:
        events = await turn(agent)
    first, _, second, _, third = seen(events)
    assert "nail" in first
    assert "changes in its -wal file" in second
    assert "a link" in third
    assert "canary-of-others" not in "".join(map(encode, events))


async def test_without_databases_there_is_nothing_of_it(workspace: Path, script: Script) -> None:
    async with agent_of(workspace, script(calls("sql.query", name="x", sql="SELECT 1"))) as agent:
        assert "no tool is called 'sql.query'" in seen(await turn(agent))[-1]


async def test_the_end_of_a_cell_ends_its_query_on_the_server(
    workspace: Path, postgres: Cluster, configure: Configure, script: Script, cell: Any
) -> None:
    configure(f'[data.shop]\nurl = "{postgres.url()}"\n')
    code = "from servers.sql import query\nquery('shop', 'SELECT pg_sleep(50), 0815')"
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%0815%' AND state = 'active' AND pid <> pg_backend_pid()"
    async with agent_of(workspace, script(cell(code))) as agent, anyio.create_task_group() as tasks:
        tasks.start_soon(turn, agent)
        with anyio.fail_after(45):
            while await anyio.to_thread.run_sync(postgres.ask, running) != "1":
                pass
            await agent.interrupt()
            while await anyio.to_thread.run_sync(postgres.ask, running) != "0":
                pass
