"""A database of each kind with something to lose, looked at from outside: what a statement did shows, whoever ran it."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tests.tools.sql.cluster import OWNER, Cluster

from pinfold.tools.sql.arrow_tables import Bounds
from pinfold.tools.sql.engines import Engine, open_engine
from pinfold.tools.sql.sources import Kind, Source, read_address
from pinfold.tools.sql.statements import DatabaseFault, Form, Refused, Statement

CANARY = "canaryofthehost5177"
"""In files that are none of a database's business."""
NAMED = "canary-among-the-names-9042"
"""The name of such a file."""
_GOODS = "INSERT INTO goods VALUES (1, 'nail', 0.10), (2, 'hammer', 12.50), (3, 'saw', 20.00)"
_SALES = "INSERT INTO sales VALUES (1, 3), (2, 1), (2, 2)"
_POSTGRES = f"""
CREATE TABLE goods (id int PRIMARY KEY, name text, price numeric(10, 2));
CREATE TABLE sales (good int, n int);
{_GOODS}; {_SALES};
CREATE SEQUENCE counter; SELECT nextval('counter');
CREATE MATERIALIZED VIEW stale AS SELECT count(*) AS n FROM goods; INSERT INTO goods VALUES (4, 'file', 5);
CREATE FUNCTION looks_pure() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE FUNCTION writes_quietly() RETURNS int LANGUAGE plpgsql AS 'BEGIN UPDATE goods SET price = 1; RETURN 1; END';
CREATE FUNCTION lies_stable() RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN UPDATE goods SET price = 1; RETURN 1; END';
CREATE VIEW quiet_view AS SELECT writes_quietly() AS n;
CREATE PROCEDURE clear_goods() LANGUAGE sql AS 'DELETE FROM goods';
SELECT lo_from_bytea(7777, 'large');
"""
_POSTGRES_STATE = """
SELECT md5(concat_ws('|',
  (SELECT string_agg(g::text, ',' ORDER BY id) FROM goods g), (SELECT string_agg(s::text, ',' ORDER BY s::text) FROM sales s),
  (SELECT last_value FROM counter), (SELECT n FROM stale),
  (SELECT string_agg(concat(relname, relkind, relacl::text, reloptions::text, obj_description(oid, 'pg_class')), ','
    ORDER BY relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace),
  (SELECT string_agg(concat(proname, prosrc), ',' ORDER BY proname, oid) FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace),
  (SELECT string_agg(concat(attrelid::regclass::text, attname, attacl::text), ',' ORDER BY attrelid, attnum)
    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace = 'public'::regnamespace AND attnum > 0),
  (SELECT string_agg(nspname::text, ',' ORDER BY nspname) FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'),
  (SELECT string_agg(typname::text, ',' ORDER BY typname) FROM pg_type WHERE typnamespace = 'public'::regnamespace),
  (SELECT string_agg(concat(rolname, rolcreatedb, rolsuper), ',' ORDER BY rolname) FROM pg_roles),
  (SELECT string_agg(rulename::text, ',' ORDER BY rulename) FROM pg_rules WHERE schemaname = 'public'),
  (SELECT string_agg(concat(loid, md5(data)), ',' ORDER BY loid) FROM pg_largeobject), (SELECT count(*) FROM pg_largeobject_metadata),
  (SELECT string_agg(slot_name::text, ',') FROM pg_replication_slots),
  (SELECT string_agg(concat(name, setting), ',') FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf')))
"""
_FILE = f"""
CREATE TABLE goods (id integer PRIMARY KEY, name text, price numeric);
CREATE TABLE sales (good int, n int);
{_GOODS}; {_SALES};
CREATE VIEW cheap AS SELECT * FROM goods WHERE price < 1;
"""
_SQLITE = """
CREATE INDEX sales_good ON sales (good);
CREATE TABLE numbered (id integer PRIMARY KEY AUTOINCREMENT, a); INSERT INTO numbered(a) VALUES (1), (2);
CREATE VIRTUAL TABLE words USING fts5(word); INSERT INTO words VALUES ('nail'), ('hammer');
CREATE VIEW sink AS SELECT 1 AS a;
CREATE TRIGGER sink_in INSTEAD OF INSERT ON sink BEGIN DELETE FROM goods; END;
CREATE TRIGGER cheap_out INSTEAD OF DELETE ON cheap BEGIN DELETE FROM goods WHERE id = old.id; END;
"""


@dataclass(frozen=True)
class Attack:
    sql: str
    effect: str
    parser_only: bool = False


@dataclass(frozen=True)
class Seen:
    """What is so after a statement."""

    state: str
    files: tuple[str, ...]
    locks: str = "0"
    victims: str = "1"


class World(Protocol):
    kind: Kind

    @property
    def sources(self) -> list[Source]:
        """The users it can be asked as."""
        ...

    def seed(self) -> None:
        """All as at the beginning."""
        ...

    def see(self) -> Seen: ...

    def filled(self, sql: str) -> str: ...

    def unguarded(self, sql: str) -> str:
        """Run with all rights and none of our guards; what came back, or the error."""
        ...


class Bare:
    """Without a look at the text: what the database itself lets through."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def run(self, source: Source, sql: str, form: Form) -> str:
        """What came back, or the error."""
        engine = self._engines.pop(source.name, None)
        try:
            is_kept = source.kind == "duckdb" or (engine is not None and engine.is_as_new())
            if engine is None or not is_kept:
                if engine is not None:
                    engine.close()
                engine = open_engine(source)
            self._engines[source.name] = engine
            found = engine.query(Statement(sql, form, frozenset()), Bounds(1000, 1 << 20))
            return str(found.table.to_pylist())
        except (Refused, DatabaseFault) as error:
            return f"refused: {error}"
        except Exception as error:  # noqa: BLE001 - whatever a driver makes of a hostile statement is no effect
            self.close()
            return f"failed: {type(error).__name__}: {error}"

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()


class Places:
    """Files around a database: some to read that it should not, and a place where nothing may appear."""

    def __init__(self, folder: Path) -> None:
        self.out, self.listed = folder / "out", folder / "listed"
        for place in (self.out, self.listed):
            place.mkdir()
        (self.listed / NAMED).touch()
        self.named: Mapping[str, str] = {
            "out": str(self.out),
            "listed": str(self.listed),
            "secret": str(self._file("secret.txt", CANARY)),
            "csv": str(self._file("data.csv", f"id,name,price\n50,{CANARY},1\n")),
            "json": str(self._file("data.json", f'{{"id": "{CANARY}"}}\n')),
            "other": str(folder / "other.db"),
        }

    def _file(self, name: str, text: str) -> Path:
        path = self.listed / name
        path.write_text(text)
        return path

    def filled(self, sql: str, **more: str) -> str:
        for name, value in {**self.named, **more}.items():
            sql = sql.replace(f"{{{name}}}", value)
        return sql

    def left(self) -> tuple[str, ...]:
        return tuple(sorted(path.name for path in self.out.rglob("*")))

    def clear(self) -> None:
        import shutil

        for path in self.out.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@dataclass
class PostgresWorld:
    cluster: Cluster
    places: Places
    kind: Kind = "postgresql"
    database: str = "shop"
    _victim: subprocess.Popen[bytes] | None = None
    _pid: str = ""
    _looking: Any = None

    @property
    def sources(self) -> list[Source]:
        return [
            Source(name=user, address=read_address(self.cluster.url(self.database, user=user)), timeout_s=10)
            for user in (OWNER, "ann")
        ]

    def seed(self) -> None:
        self.places.clear()
        if not self._pid:
            self.cluster.run(
                f"""
                DROP DATABASE IF EXISTS {self.database} WITH (FORCE); CREATE DATABASE {self.database};
                DROP ROLE IF EXISTS ann; CREATE ROLE ann LOGIN PASSWORD '{self.cluster.password}';
                """
            )
        self.cluster.run(
            f"""
            SET client_min_messages = error;
            SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots; ALTER SYSTEM RESET ALL;
            SELECT lo_unlink(oid) FROM pg_largeobject_metadata;
            DROP SCHEMA IF EXISTS made, public CASCADE; CREATE SCHEMA public AUTHORIZATION ann;
            DROP ROLE IF EXISTS made; ALTER ROLE ann NOCREATEDB;
            SET ROLE ann; {_POSTGRES}
            """,
            self.database,
        )
        if self._victim is None or self.see().victims == "0":
            self._another_victim()

    def _another_victim(self) -> None:
        self.close()
        # A session of ann's, which another of hers could end.
        self._victim = subprocess.Popen(
            [self.cluster.bin / "psql", "-XAtq", "-d", self.cluster.url(self.database, user="ann")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._victim.stdin is not None
        assert self._victim.stdout is not None
        self._victim.stdin.write(b"SELECT pg_backend_pid();\n")
        self._victim.stdin.flush()
        self._pid = self._victim.stdout.readline().decode().strip()

    def see(self) -> Seen:
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        victims = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {self._pid}"
        try:
            if self._looking is None:
                self._looking = import_module("adbc_driver_postgresql.dbapi").connect(
                    self.cluster.url(self.database), autocommit=True
                )
            state = self._looked(_POSTGRES_STATE)
        except Exception as error:  # noqa: BLE001 - something that is looked at is gone
            state = str(error)
        told = (self._looked(locks), self._looked(victims))
        return Seen(state, self.places.left(), *told)

    def _looked(self, sql: str) -> str:
        with self._looking.cursor() as cursor:
            cursor.execute(sql)
            return str(cursor.fetchone()[0])

    def filled(self, sql: str) -> str:
        return self.places.filled(sql, victim=self._pid)

    def unguarded(self, sql: str) -> str:
        """In a session that stays: a lock that is held is seen."""
        done = subprocess.run(
            [self.cluster.bin / "psql", "-XAt", "-d", self.cluster.url(self.database), "-c", sql,
             "-c", "SELECT 'locks=' || count(*) FROM pg_locks WHERE locktype = 'advisory'"],
            capture_output=True, check=False,
        )  # fmt: skip
        return (done.stdout + done.stderr).decode("utf-8", "replace")

    def close(self) -> None:
        if self._looking is not None:
            self._looking.close()
            self._looking = None
        if self._victim:
            assert self._victim.stdin is not None
            with suppress(OSError):
                self._victim.stdin.close()
            self._victim.wait(10)
            assert self._victim.stdout is not None
            self._victim.stdout.close()
            self._victim = None


@dataclass
class FileWorld:
    kind: Kind
    folder: Path
    places: Places
    _made: dict[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def path(self) -> Path:
        return self.folder / "shop.db"

    @property
    def sources(self) -> list[Source]:
        return [
            Source(name="shop", address=read_address(f"{self.kind}://{self.path}"), timeout_s=10, max_bytes=64 << 20)
        ]

    def seed(self) -> None:
        self.places.clear()
        for path in self.folder.glob("shop.db*"):
            path.unlink()
        if not self._made:
            self._make()
        for name, data in self._made.items():
            (self.folder / name).write_bytes(data)

    def _make(self) -> None:
        other = Path(self.places.named["other"])
        if self.kind == "sqlite":
            self._script(self.path, _FILE + _SQLITE)
            self._script(other, f"CREATE TABLE hidden AS SELECT '{CANARY}' AS a")
        else:
            self._script(self.path, _FILE + "CREATE SEQUENCE counter;")
            self._script(other, f"CREATE TABLE hidden AS SELECT '{CANARY}' AS a")
        self._made = {"shop.db": self.path.read_bytes()}

    def _script(self, path: Path, sql: str) -> None:
        if self.kind == "sqlite":
            connection = sqlite3.connect(path)
            connection.executescript(sql)
        else:
            connection = import_module("duckdb").connect(str(path))
            connection.execute(sql)
        connection.close()

    def see(self) -> Seen:
        """The bytes of every file of the folder."""
        files = {path.name: path.read_bytes() for path in sorted(self.folder.glob("shop.db*"))}
        state = hashlib.sha256(repr(files).encode()).hexdigest()
        return Seen(state=state, files=self.places.left())

    def filled(self, sql: str) -> str:
        return self.places.filled(sql, victim="0")

    def unguarded(self, sql: str) -> str:
        try:
            if self.kind == "sqlite":
                return self._unguarded_sqlite(sql)
            connection: Any = import_module("duckdb").connect(str(self.path))
            try:
                with warnings.catch_warnings(action="ignore"):  # it has a faster way, for one statement
                    return str(connection.execute(sql).to_arrow_table().to_pylist())
            finally:
                connection.close()
        except Exception as error:  # noqa: BLE001 - what a control cannot run has no effect
            return f"failed: {error}"

    def _unguarded_sqlite(self, sql: str) -> str:
        connection = sqlite3.connect(self.path, isolation_level=None)
        told: list[str] = []
        try:
            # Its driver takes one statement at a time.
            waiting = sql
            while waiting.strip():
                at = next(
                    (
                        at
                        for at, sign in enumerate(waiting, 1)
                        if sign == ";" and sqlite3.complete_statement(waiting[:at])
                    ),
                    len(waiting),
                )
                told.append(str(connection.execute(waiting[:at]).fetchall()))
                waiting = waiting[at:]
        finally:
            connection.close()
        return "\n".join(told)


def has_effect(before: Seen, after: Seen, said: str) -> bool:
    """Whether anything came of it but words."""
    return before != after or tells(said)


def tells(said: str) -> bool:
    """Of what no statement holds by itself."""
    return CANARY in said or NAMED in said
