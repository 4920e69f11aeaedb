"""No password leaves the host's side: not in what is told, not in errors, not in processes' arguments, not in the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import nullcontext
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.tools.sql.cluster import Cluster

from pinfold.tools import BadCall
from pinfold.tools.sql.files import FileCheck
from pinfold.tools.sql.sources import BadAddress, Source, read_address, show_address
from pinfold.tools.sql.statements import Refused
from pinfold.tools.sql.workers import Workers

pytestmark = [pytest.mark.safety, pytest.mark.anyio]
SECRET = "c4nary/p@ss w:rd%'\"\\"
QUOTED = "c4nary%2Fp%40ss%20w%3Ard%25%27%22%5C"


@pytest.fixture
async def workers() -> AsyncGenerator[Workers]:
    made = Workers()
    yield made
    await made.close()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{QUOTED}@127.0.0.1:1/x",
        f"postgresql://ann@127.0.0.1:1/x?password={QUOTED}",
        f"postgresql://ann:{QUOTED}@no.such.host.invalid/x",
        f"postgresql://ann:{QUOTED}@127.0.0.1:notaport/x",
        f"postgresql://ann:{QUOTED}@127.0.0.1:1/x?nosuchoption=1",
        f"postgresql://ann:{QUOTED}@127.0.0.1:1/x?sslmode=nonsense",
        f"postgresql://ann:{QUOTED}@127.0.0.1:1/%zz",
        f"postgresql://ann:{QUOTED}@127.0.0.1:99999/x",
    ],
)
async def test_no_error_of_a_driver_tells_the_password(url: str, workers: Workers) -> None:
    address = read_address(url)
    assert address.password == SECRET
    assert "c4nary" not in repr(address)
    assert "c4nary" not in show_address(url)
    source = Source(name="x", address=address, timeout_s=5)
    assert "c4nary" not in repr(source)
    with pytest.raises(BadCall) as caught:
        await workers.ask(source, "SELECT 1")
    assert "c4nary" not in str(caught.value)
    assert str(caught.value)


async def test_a_driver_that_is_given_the_whole_address_does_tell() -> None:
    """The control: it is we who keep it from telling."""
    from importlib import import_module

    driver = import_module("adbc_driver_postgresql.dbapi")
    with pytest.raises(Exception, match="c4nary"):
        driver.connect(f"postgresql://ann:{QUOTED}@[::1/x")


async def test_a_password_with_every_sign_in_it_opens_the_door(postgres: Cluster, workers: Workers) -> None:
    escaped = SECRET.replace("'", "''")
    postgres.run(f"DROP ROLE IF EXISTS odd; CREATE ROLE odd LOGIN PASSWORD '{escaped}'")
    source = Source(name="x", address=read_address(postgres.url(user="odd", password=QUOTED)))
    assert "odd" in (await workers.ask(source, "SELECT current_user")).text
    # Neither its arguments nor the environment it was started with hold it, for others of the machine to see.
    (pid,) = workers.idle
    for name in ("cmdline", "environ"):
        told = await anyio.Path(f"/proc/{pid}/{name}").read_bytes()
        assert told
        assert b"c4nary" not in told
    wrong = replace(source, address=replace(source.address, password="c4nary-and-wrong"))
    with pytest.raises(BadCall, match="password authentication failed") as caught:
        await workers.ask(wrong, "SELECT 1")
    assert "c4nary" not in str(caught.value)


async def test_nothing_the_server_can_be_asked_for_holds_the_password(postgres: Cluster, workers: Workers) -> None:
    source = Source(name="x", address=read_address(postgres.url()))
    for sql in (
        "SELECT * FROM pg_stat_activity",
        "SELECT name, setting FROM pg_settings",
        "SELECT * FROM pg_roles",
        "SHOW ALL",
        "SELECT current_query()",
        "SELECT * FROM pg_user_mappings",
    ):
        answered = await workers.ask(source, sql)
        assert postgres.password.encode() not in answered.table
        assert postgres.password not in answered.text


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://a:c4nary@b/c", "not a database address"),
        ("just/a/path", "not a database address"),
        ("sqlite://host/path", "names no file"),
        ("sqlite:///", "names no file"),
        ("duckdb:///:memory:", "names no file"),
        ("postgresql://a:${secret:X}@b/c", "goes into `password`"),
        ("postgresql://a:c4nary@b/c?passfile=/x", "leave that to libpq"),
        ("postgresql://a:c4nary@b/c\nx", "control characters"),
        ("postgresql://a:c4nary@[::1/c", "cannot be read"),
    ],
)
def test_an_address_that_is_none_is_told_without_its_words(url: str, words: str) -> None:
    with pytest.raises(BadAddress, match=words) as caught:
        read_address(url)
    assert "c4nary" not in str(caught.value)


def test_addresses_are_read_as_they_are_meant() -> None:
    assert read_address("sqlite:////data/a%20b.db").where == "/data/a b.db"
    assert read_address("sqlite:///data/x.db").where == "/data/x.db"
    assert read_address("duckdb:///~/x.db").where == str(Path("~/x.db").expanduser())
    server = read_address("postgres://ann@db.example.org:5433/shop?sslmode=require")
    assert (server.kind, server.hosts, server.port) == ("postgresql", ("db.example.org",), 5433)
    assert server.where == "postgresql://ann@db.example.org:5433/shop?sslmode=require"
    assert read_address("postgresql:///shop?host=/run/postgresql").hosts == ("localhost",)
    assert read_address("postgresql://a,b:1/shop").hosts == ("a", "b")


@pytest.mark.parametrize("is_exchanged", [False, True])
def test_a_file_that_is_exchanged_while_it_is_opened_is_not_read(tmp_path: Path, is_exchanged: bool) -> None:
    (tmp_path / "shop.db").write_bytes(b"what was looked at")
    (tmp_path / "other.db").write_bytes(b"canary of others")
    source = Source(name="x", address=read_address(f"sqlite://{tmp_path}/shop.db"), changeable=(str(tmp_path),))
    looked = FileCheck(source, ())
    if is_exchanged:
        (tmp_path / "shop.db").unlink()
        (tmp_path / "shop.db").symlink_to(tmp_path / "other.db")
    with (tmp_path / "shop.db").open("rb"), pytest.raises(Refused) if is_exchanged else nullcontext():
        looked.check()


@pytest.mark.parametrize("way", ["a link to it", "a linked folder", "a link that leads through"])
def test_no_link_that_code_can_change_leads_to_a_database(tmp_path: Path, way: str) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "x.db").write_bytes(b"x")
    (inside / "link.db").symlink_to(outside / "x.db")
    (inside / "folder").symlink_to(outside)
    (tmp_path / "way").symlink_to(inside / "folder")
    path = {
        "a link to it": inside / "link.db",
        "a linked folder": inside / "folder" / "x.db",
        "a link that leads through": tmp_path / "way" / "x.db",
    }[way]
    address = read_address(f"duckdb://{path}")
    with pytest.raises(Refused, match="link"):
        FileCheck(Source(name="x", address=address, changeable=(str(inside),)), ())
    assert not FileCheck(Source(name="x", address=address, changeable=(str(tmp_path / "elsewhere"),)), ()).is_changeable
