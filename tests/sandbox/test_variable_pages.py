"""Pages of variables in a real session: bounded, interruptible, no step of the session; hostile answers are refused."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from pinfold.sandbox import Paged, PageQuery, Session, Spec
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.sandbox.session.channel import ChannelBroken, variable_page
from pinfold.sandbox.session.guest_slot import PAGE_BYTES, PAGE_GRACE_S
from pinfold.sandbox.session.session import GuestSession

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's own")]
SLOW = "x = [1.5] * 30_000_000"


@pytest.fixture
async def jailed(workspace: Path) -> AsyncGenerator[GuestSession]:
    session = await Namespaces().open(Spec(workspace=workspace))
    assert isinstance(session, GuestSession)
    try:
        yield session
    finally:
        await session.close()


async def test_a_page_makes_no_undo_point_and_counts_as_no_cell(jailed: GuestSession) -> None:
    assert isinstance(jailed, Paged)
    await jailed.run("x = [2, 1]")
    await jailed.run("x.append(0)")
    path = jailed.path
    assert (await jailed.variable_page("x", PageQuery(sort="value"))).rows == ((0,), (1,), (2,))
    assert jailed.path == path
    await jailed.undo()
    assert (await jailed.variable_page("x", PageQuery())).rows == ((2,), (1,))
    await jailed.redo()
    assert (await jailed.variable_page("x", PageQuery(sort="value"))).rows == ((0,), (1,), (2,))


async def test_a_page_that_takes_too_long_is_interrupted_and_the_variables_stay(jailed: GuestSession) -> None:
    await jailed.run(SLOW)
    body = b'{"name": "x", "offset": 0, "limit": 1, "sort": null, "descending": false, "filter": "q", "column": null}'
    reply = await jailed.slot.ask("page", body, PAGE_BYTES, limit_s=0.05, grace_s=PAGE_GRACE_S)
    assert (reply.status, reply.body) == (
        "refused",
        b"this took too long and was stopped; ask for less: one column, or no filter",
    )
    assert (await jailed.run("len(x)")).value == "30000000"


async def test_a_caller_that_gives_up_interrupts_its_page_and_loses_nothing(jailed: GuestSession) -> None:
    await jailed.run(SLOW)
    with anyio.move_on_after(0.05) as scope:
        await jailed.variable_page("x", PageQuery(filter="q"))
    assert scope.cancelled_caught
    outcome = await jailed.run("len(x)")
    assert (outcome.value, outcome.state_lost, outcome.notices) == ("30000000", False, ())


async def test_a_page_is_served_after_the_cell_that_runs(session: Session) -> None:
    assert isinstance(session, GuestSession)
    await session.run("import os\nos.mkfifo('wait')\nx = [1]")
    started = anyio.Event()
    pages: list[object] = []

    async def run() -> None:
        outcome = await session.run("print('on', flush=True)\nopen('wait').read()\nx.append(2)", on_output=heard)
        assert outcome.status == "ok"

    def heard(_stream: str, _text: str) -> None:
        started.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await started.wait()

        async def look() -> None:
            pages.append((await session.variable_page("x", PageQuery())).rows)

        tasks.start_soon(look)
        await anyio.lowlevel.checkpoint()
        assert pages == []
        assert session.spec is not None
        (session.spec.workspace / "wait").write_text("go", encoding="utf-8")
    assert pages == [((1,), (2,))]


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[",
        b'{"name":"x","type":"l","columns":[],"rows":[[1]],"total":1,"matching":1,"offset":0}',
        b'{"name":"x","type":"l","columns":[],"rows":[{"a":1}],"total":1,"matching":1,"offset":0}',
    ],
    ids=["empty", "cut", "ragged", "nested"],
)
def test_a_page_that_is_none_breaks_the_channel(body: bytes) -> None:
    with pytest.raises(ChannelBroken):
        variable_page(body)
