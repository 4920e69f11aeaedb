"""Rows arrive as what they are in the database, or it is said why they cannot."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.tools.sql.cluster import Cluster

from pinfold.tools import BadCall
from pinfold.tools.sql.sources import Source, WorkerReply, read_address
from pinfold.tools.sql.workers import Workers

pytestmark = [pytest.mark.integration, pytest.mark.anyio]
Ask: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
UTC = dt.UTC


@pytest.fixture(scope="module")
async def workers() -> AsyncGenerator[Workers]:
    made = Workers()
    yield made
    await made.close()


def table_of(answered: WorkerReply) -> Any:
    return import_module("pyarrow").ipc.open_stream(answered.table).read_all()


def plain(value: Any) -> Any:
    """Days and times of libraries as Python's own."""
    return value.astimezone(UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


POSTGRES_VALUES: list[tuple[str, Any]] = [
    ("1::int2", 1),
    ("2147483647::int4", 2147483647),
    ("9223372036854775807::int8", 9223372036854775807),
    ("1.5::float4", 1.5),
    ("0.1::float8", 0.1),
    ("'Infinity'::float8", float("inf")),
    ("true", True),
    ("null", None),
    ("null::int", None),
    ("12.50::numeric(10, 2)", Decimal("12.50")),
    ("12345678901234567890.123456789::numeric", Decimal("12345678901234567890.123456789")),
    ("-0.000001::numeric", Decimal("-0.000001")),
    ("1e30::numeric", Decimal("1" + "0" * 30)),
    ("repeat('9', 60)::numeric", Decimal("9" * 60)),
    ("repeat('9', 90)::numeric", "9" * 90),
    ("'NaN'::numeric", "nan"),
    ("12.34::money", Decimal("12.34")),
    ("'Straße 🚀'::text", "Straße 🚀"),
    ("''::text", ""),
    ("'a'::varchar(3)", "a"),
    ("'ab'::char(4)", "ab  "),
    ("'\\x00ff'::bytea", b"\x00\xff"),
    ("'\\x'::bytea", b""),
    ("date '2024-02-29'", dt.date(2024, 2, 29)),
    ("time '12:34:56.789'", dt.time(12, 34, 56, 789000)),
    ("timestamp '2024-01-01 12:00:00.123456'", dt.datetime(2024, 1, 1, 12, 0, 0, 123456)),  # noqa: DTZ001
    ("timestamptz '2024-01-01 12:00:00+02'", dt.datetime(2024, 1, 1, 10, 0, tzinfo=UTC)),
    ("timetz '12:00:00+02'", "12:00:00+02"),
    ("interval '1 year 2 days 00:00:01.5'", (12, 2, 1_500_000_000)),
    ("'{\"a\": [1, null]}'::jsonb", '{"a": [1, null]}'),
    ("'{\"a\":1}'::json", '{"a":1}'),
    ("'5b1c8b1e-0000-4000-8000-000000000001'::uuid", "5b1c8b1e-0000-4000-8000-000000000001"),
    ("ARRAY[1, null, 3]", [1, None, 3]),
    ("'{}'::int[]", []),
    ("null::int[]", None),
    ("ARRAY['a', null, 'ä,\"']", ["a", None, 'ä,"']),
    ("ARRAY[1.5, 2.25]::numeric[]", [Decimal("1.50"), Decimal("2.25")]),
    ("ARRAY['5b1c8b1e-0000-4000-8000-000000000001']::uuid[]", ["5b1c8b1e-0000-4000-8000-000000000001"]),
    ("ARRAY['{}']::jsonb[]", ["{}"]),
    ("ARRAY[timestamptz '2024-01-01 00:00:00+00']", [dt.datetime(2024, 1, 1, tzinfo=UTC)]),
    ("'mid'::mood", "mid"),
    ("ARRAY['mid']::mood[]", ["mid"]),
    ("7::small", 7),
    ("ROW(1, 'a')::pair", {"n": 1, "t": "a"}),
    ("ROW(1, 'a')", "(1,a)"),
    ("4000000000::oid", 4000000000),
    ("inet '10.0.0.1'", "10.0.0.1/32"),
    ("int4range(1, 5)", "[1,5)"),
    ("point(1, 2)", "(1,2)"),
    ("B'101'", "101"),
    ("'<a/>'::xml", "<a/>"),
    ("'a b'::tsvector", "'a' 'b'"),
]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
async def test_tables_of_a_file_are_listed_with_their_columns(kind: str, workers: Workers, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    connection = import_module("sqlite3" if kind == "sqlite" else "duckdb").connect(str(file))
    connection.execute("CREATE TABLE goods (id INTEGER NOT NULL, name TEXT)")
    connection.close()
    listed = await workers.ask(Source(name=kind, address=read_address(f"{kind}://{file}")), None)
    assert [(one["name"], one["kind"], list(one["columns"])) for one in listed.value] == [
        ("goods", "table", ["id", "name"])
    ]


@pytest.fixture
async def postgres_row(postgres: Cluster, workers: Workers) -> Ask:
    postgres.run(
        """
        DROP TYPE IF EXISTS mood, pair CASCADE; DROP DOMAIN IF EXISTS small;
        CREATE TYPE mood AS ENUM ('low', 'mid'); CREATE TYPE pair AS (n int, t text);
        CREATE DOMAIN small AS int CHECK (VALUE < 10);
        """
    )
    source = Source(name="shop", address=read_address(postgres.url()))

    async def ask(sql: str, params: Any = None) -> Any:
        return table_of(await workers.ask(source, sql, params))

    return ask


async def test_what_postgresql_holds_is_what_arrives(postgres_row: Ask) -> None:
    columns = ", ".join(f"{sql} AS c{at}" for at, (sql, _) in enumerate(POSTGRES_VALUES))
    table = await postgres_row(f"SELECT {columns}")
    row = table.to_pylist()[0]
    got = [plain(row[f"c{at}"]) for at in range(len(POSTGRES_VALUES))]
    assert got == [value for _, value in POSTGRES_VALUES]
    assert len(got) > 50


async def test_nothing_at_all_has_columns_and_types(postgres_row: Ask) -> None:
    columns = ", ".join(f"{sql} AS c{at}" for at, (sql, _) in enumerate(POSTGRES_VALUES))
    table = await postgres_row(f"SELECT {columns} WHERE false")
    assert (table.num_rows, table.num_columns) == (0, len(POSTGRES_VALUES))
    assert str(table.schema.field("c9").type) == "decimal128(10, 2)"


async def test_columns_of_one_name_stay_two(postgres_row: Ask) -> None:
    table = await postgres_row("SELECT 1 AS a, 2 AS a, inet '10.0.0.1' AS a")
    assert table.column_names == ["a", "a", "a"]
    assert [table.column(at)[0].as_py() for at in range(3)] == [1, 2, "10.0.0.1/32"]


@pytest.mark.slow
async def test_order_and_nulls_survive_many_batches(postgres_row: Ask) -> None:
    table = await postgres_row(
        "SELECT n, CASE WHEN n % 3 > 0 THEN n * 1.25 END AS x, md5(n::text)::uuid AS u FROM generate_series(1, 200000) n ORDER BY n"
    )
    assert table.column("n").to_pylist() == list(range(1, 200001))
    assert table.column("x").null_count == 200000 // 3
    assert sum(filter(None, table.column("x").to_pylist())) == sum(
        Decimal(n) * Decimal("1.25") for n in range(1, 200001) if n % 3
    )


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 'infinity'::timestamptz AS t", "holds infinity"),
        ("SELECT '-infinity'::date AS t", "holds infinity"),
        ("SELECT ARRAY[[1, 2], [3, 4]] AS t", "several dimensions"),
    ],
)
async def test_what_would_arrive_as_something_else_is_refused_with_a_way_out(
    postgres_row: Ask, sql: str, words: str
) -> None:
    with pytest.raises(BadCall, match=words):
        await postgres_row(sql)
    assert (await postgres_row(sql.replace("AS t", "IS NULL AS t"))).num_rows == 1


@pytest.mark.parametrize(
    "value", ["it's", "a\\b", "; DROP TABLE x --", "$1", 5, -5, 2.5, True, None, ["a", "it's"], b"\x00'", "ä\n"]
)
async def test_values_that_are_given_arrive_as_they_are(postgres_row: Ask, value: Any) -> None:
    kinds = {"list": "text[]", "bytes": "bytea", "bool": "bool", "int": "int", "float": "float8"}
    kind = kinds.get(type(value).__name__, "text")
    assert (await postgres_row(f"SELECT $1::{kind} AS v, '$1' AS t", [value])).to_pylist() == [{"v": value, "t": "$1"}]
    assert (await postgres_row(f"SELECT :it::{kind} AS v", {"it": value})).to_pylist() == [{"v": value}]


@pytest.mark.parametrize(
    ("sql", "params", "words"),
    [
        ("SELECT $2", [1], r"names \$2"),
        ("SELECT 1", [1], "does not name"),
        ("SELECT %s", [1], "not %s"),
        ("SELECT $1", [{"a": 1}], "cannot hold a dict"),
        ("SELECT $1", ["a\0"], "zero byte"),
    ],
)
async def test_values_that_do_not_fit_are_refused(postgres_row: Ask, sql: str, params: Any, words: str) -> None:
    with pytest.raises(BadCall, match=words):
        await postgres_row(sql, params)


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (i, f, s, b, n, mixed, nums, huge)")
    rows = [
        (1, 1.5, "ä", b"\x00", None, 1, 1, 2**60),
        (-(2**63), 2.0, "", b"", None, "x", 2.5, 0.5),
        (None, None, None, None, None, None, None, None),
    ]
    connection.executemany("INSERT INTO t VALUES (?,?,?,?,?,?,?,?)", rows)
    connection.commit()
    connection.close()
    return path


async def test_what_sqlite_holds_is_what_arrives(sqlite_file: Path, workers: Workers) -> None:
    source = Source(name="shop", address=read_address(f"sqlite://{sqlite_file}"))
    table = table_of(await workers.ask(source, "SELECT * FROM t"))
    assert table.to_pydict() == {
        "i": [1, -(2**63), None],
        "f": [1.5, 2.0, None],
        "s": ["ä", "", None],
        "b": [b"\x00", b"", None],
        "n": [None, None, None],
        "mixed": ["1", "x", None],
        "nums": [1.0, 2.5, None],
        "huge": [str(2**60), "0.5", None],
    }
    assert b"mixed" in table.schema.field("mixed").metadata[b"sql:type"]
    assert table_of(await workers.ask(source, "SELECT ? AS a, ? AS b", [1, "x"])).to_pylist() == [{"a": 1, "b": "x"}]
    assert table_of(await workers.ask(source, "SELECT :a AS a", {"a": None})).to_pylist() == [{"a": None}]


async def test_text_of_sqlite_that_is_none_is_mended(tmp_path: Path, workers: Workers) -> None:
    connection = sqlite3.connect(tmp_path / "odd.db")
    connection.execute("CREATE TABLE t AS SELECT CAST(x'61ff62' AS text) AS a")
    connection.commit()
    connection.close()
    source = Source(name="odd", address=read_address(f"sqlite://{tmp_path}/odd.db"))
    assert table_of(await workers.ask(source, "SELECT a FROM t")).to_pylist() == [{"a": "a\ufffdb"}]


DUCKDB_VALUES: list[tuple[str, Any]] = [
    ("1::hugeint * 170141183460469231731687303715884105727", Decimal(2**127 - 1)),
    ("340282366920938463463374607431768211455::uhugeint", Decimal(2**128 - 1)),
    ("1.5::decimal(10, 2)", Decimal("1.50")),
    ("'a'::enum('a', 'b')", "a"),
    ("[1, null]", [1, None]),
    ("{'a': 1, 'b': 'x'}", {"a": 1, "b": "x"}),
    ("map {'k': 1}", [("k", 1)]),
    ("'101'::bit", "101"),
    ("timestamptz '2024-01-01 12:00:00+02'", dt.datetime(2024, 1, 1, 10, 0, tzinfo=UTC)),
    ("timetz '12:00:00+02'", "12:00:00+02"),
    ("'\\xAA'::blob", b"\xaa"),
    ("date '2024-01-01'", dt.date(2024, 1, 1)),
    ("uuid '5b1c8b1e-0000-4000-8000-000000000001'", "5b1c8b1e-0000-4000-8000-000000000001"),
    ("'{\"a\":1}'::json", '{"a":1}'),
    ("null", None),
    ("true", True),
]


async def test_what_duckdb_holds_is_what_arrives(tmp_path: Path, workers: Workers) -> None:
    path = tmp_path / "shop.duckdb"
    import_module("duckdb").connect(str(path)).close()
    source = Source(name="shop", address=read_address(f"duckdb://{path}"))
    columns = ", ".join(f"{sql} AS c{at}" for at, (sql, _) in enumerate(DUCKDB_VALUES))
    row = table_of(await workers.ask(source, f"SELECT {columns}")).to_pylist()[0]
    assert [plain(value) for value in row.values()] == [value for _, value in DUCKDB_VALUES]
    with pytest.raises(BadCall, match="holds infinity"):
        await workers.ask(source, "SELECT 'infinity'::timestamp AS t")
    assert table_of(await workers.ask(source, "SELECT ? AS a, ? AS b", [1, "x"])).to_pylist() == [{"a": 1, "b": "x"}]
    assert table_of(await workers.ask(source, "SELECT $a AS a", {"a": 1})).to_pylist() == [{"a": 1}]
