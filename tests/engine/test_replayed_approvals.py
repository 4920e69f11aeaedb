"""Answers that were given to something else, or by somebody who only guesses: none of them lets anything run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.engine.doubles import EchoRunner, Life, calls, life, memory_log, outcomes, says

from pinfold.engine import CommandRefused, Engine, PolicyContext, digest_of
from pinfold.events import (
    Action,
    ActionFinished,
    ActionId,
    ApprovalDecided,
    ApprovalRequested,
    Ask,
    CallTool,
    Continue,
    Decide,
    Interrupt,
    Say,
    TurnEnded,
    TurnId,
    Verdict,
)
from pinfold.tools import tool

pytestmark = pytest.mark.safety

ACTION = CallTool(tool="send", args={"to": "ann", "copies": 2})
SHOWS = "- old line\n+ new line"
SCRIPT = (
    says("", calls("send", to="eve", copies=1)),
    says("", calls("send", **ACTION.args)),
    says("ok"),
    says("", calls("send", to="bob", copies=1)),
    says("ok"),
)


@tool
def send(to: str, copies: int) -> str:
    """Has an effect that cannot be undone."""
    return f"sent {copies} to {to}"


@dataclass
class Waiting:
    """A session that waits for an answer, with another answered before it."""

    session: Life
    runner: EchoRunner
    asked: ApprovalRequested
    earlier: Decide
    shown: list[str] = field(default_factory=lambda: [SHOWS])

    @property
    def right(self) -> Decide:
        return Decide(id=self.asked.id, digest=self.asked.digest, verdict="allow")

    async def accepts(self, decide: Decide) -> bool:
        before = self.session.log.seq
        try:
            await self.session.submit(decide)
        except CommandRefused:
            assert self.session.log.seq == before
            return False
        return True


async def next_asked(session: Life) -> ApprovalRequested:
    """The one that waits now."""
    with anyio.fail_after(50):
        while True:
            for item in session.core.state.open.values():
                if item.stage == "asking" and item.asked:
                    return item.asked
            await session.core.wait_for_change()


async def waiting(session: Life, runner: EchoRunner, shown: list[str]) -> Waiting:
    await session.submit(Say(turn=TurnId("t1"), text="go"))
    first = await next_asked(session)
    earlier = Decide(id=first.id, digest=first.digest, verdict="allow")
    await session.submit(earlier)
    with anyio.fail_after(50):
        while (asked := await next_asked(session)).id == first.id:
            await session.core.wait_for_change()
    return Waiting(session, runner, asked, earlier, shown)


class opened:  # noqa: N801 - used as `async with opened()`
    def __init__(self, **more: Any) -> None:
        self._more = more

    async def __aenter__(self) -> Waiting:
        shown = [SHOWS]

        def shows(_: Action) -> str:
            return shown[0]

        runner = EchoRunner(tools=[send], shown=shows)
        self._life = life(SCRIPT, runner=runner, unattended=False, **self._more)
        return await waiting(await self._life.__aenter__(), runner, shown)

    async def __aexit__(self, *_: object) -> None:
        await self._life.__aexit__(None, None, None)


def digests(right: str) -> Iterator[tuple[str, str]]:
    """The digest, changed a little."""
    for at in range(64):
        yield f"cut at {at}", right[:at]
        other = "0" if right[at] != "0" else "1"
        yield f"another letter at {at}", right[:at] + other + right[at + 1 :]
    for end in ("0", " ", "\n", "\0", right):
        yield f"longer by {end[:1]!r}", right + end
        yield f"longer before by {end[:1]!r}", end + right
    yield "upper case", right.upper() if right.upper() != right else right + "A"
    yield "backwards", right[::-1]
    yield "of itself", hashlib.sha256(right.encode()).hexdigest()
    yield "with its kind", f"sha256:{right}"
    yield "wide digits", "".join(chr(ord(one) + 0xFEE0) for one in right)
    yield "a wildcard", "*"
    yield "zeros", "0" * 64


def contents(id_: ActionId) -> Iterator[tuple[str, str]]:
    """Digests of something else, made as ours are."""
    others: dict[str, Action] = {
        "another recipient": CallTool(tool="send", args={"to": "eve", "copies": 2}),
        "a space more": CallTool(tool="send", args={"to": "ann ", "copies": 2}),
        "another case": CallTool(tool="send", args={"to": "Ann", "copies": 2}),
        "a number as text": CallTool(tool="send", args={"to": "ann", "copies": "2"}),
        "a fraction": CallTool(tool="send", args={"to": "ann", "copies": 2.5}),
        "another number": CallTool(tool="send", args={"to": "ann", "copies": 3}),
        "an argument less": CallTool(tool="send", args={"to": "ann"}),
        "an argument more": CallTool(tool="send", args={"to": "ann", "copies": 2, "bcc": "eve"}),
        "none": CallTool(tool="send", args={}),
        "a list": CallTool(tool="send", args=["ann", 2]),
        "another tool": CallTool(tool="sent", args=ACTION.args),
        "another tool's case": CallTool(tool="Send", args=ACTION.args),
        "a look-alike": CallTool(tool="send", args={"to": "\u0430nn", "copies": 2}),
        "a hidden letter": CallTool(tool="send", args={"to": "ann\u200b", "copies": 2}),
    }
    for name, action in others.items():
        yield f"{name}, as shown", digest_of(id_, action, SHOWS)
        yield f"{name}, not shown", digest_of(id_, action)
    for shows in ("", SHOWS + "\n", SHOWS.upper(), SHOWS[:-1], "+ new line", SHOWS.replace("old", "0ld"), " " + SHOWS):
        yield f"shown as {shows!r}", digest_of(id_, ACTION, shows)
    for other in ("", "a_0", id_.upper(), id_ + " ", id_[:-1]):
        yield f"for the id {other!r}", digest_of(ActionId(other), ACTION, SHOWS)


def ids(right: ActionId) -> Iterator[str]:
    yield from ("", "*", "a_", "null", right.upper(), right[:-1], right + "0", right + " ", f" {right}", right[::-1])
    yield from (f"{right}\0", f"{right}/../{right}", f"{right}\n")


def forgeries(waits: Waiting, foreign: Decide) -> Iterator[tuple[str, Decide]]:
    right = waits.right
    for name, digest in (*digests(right.digest), *contents(right.id)):
        yield f"digest {name}", replace(right, digest=digest)
    for id_ in ids(right.id):
        yield f"id {id_!r}", replace(right, id=ActionId(id_))
    yield "an answer that was used", waits.earlier
    yield "an answer that was used, for this", replace(waits.earlier, id=right.id)
    yield "this answer, for one that was answered", replace(right, id=waits.earlier.id)
    yield "of another session", foreign
    yield "of another session, for this", replace(foreign, id=right.id)
    yield "this, for another session's", replace(right, id=foreign.id)
    for scope in ("session", "always"):
        yield f"used, for {scope}", replace(waits.earlier, scope=scope)
        yield f"guessed, for {scope}", replace(right, digest="0" * 64, scope=scope)
    yield "a no to other bytes", replace(right, digest="0" * 64, verdict="deny")


async def foreign_answer() -> Decide:
    async with opened() as waits:
        return waits.right


async def test_of_two_hundred_forged_answers_none_is_accepted_and_then_the_right_one_is() -> None:
    foreign = await foreign_answer()
    async with opened() as waits:
        tried = [(name, forged) for name, forged in forgeries(waits, foreign) if forged != waits.right]
        assert len(tried) >= 200
        assert len(waits.runner.began) == 1
        accepted = [name for name, forged in tried if await waits.accepts(forged)]
        assert accepted == []
        assert len(waits.runner.began) == 1
        assert await waits.accepts(waits.right)
        await waits.session.ended(TurnId("t1"))
        assert waits.runner.began[1:] == [ACTION]
        assert not await waits.accepts(waits.right)
        replayed = [name for name, forged in tried if await waits.accepts(forged)]
        assert replayed == []


async def test_an_engine_that_does_not_compare_digests_is_found_out() -> None:
    class Careless(Engine):
        async def submit(self, command: Any) -> None:
            item = self.core.state.open.get(command.id) if isinstance(command, Decide) else None
            if item and item.asked:
                command = replace(command, digest=item.asked.digest)
            await super().submit(command)

    async with opened() as waits:
        waits.session.engine.__class__ = Careless
        forged = next(one for name, one in forgeries(waits, waits.right) if name == "digest zeros")
        assert await waits.accepts(forged)
        await waits.session.ended(TurnId("t1"))
        assert len(waits.runner.began) == 2


Closed = Callable[[Waiting], Any]


async def interrupted(waits: Waiting) -> None:
    await waits.session.submit(Interrupt())
    await waits.session.ended(TurnId("t1"))


async def refused(waits: Waiting) -> None:
    await waits.session.submit(replace(waits.right, verdict="deny"))
    await waits.session.ended(TurnId("t1"))


async def done(waits: Waiting) -> None:
    await waits.session.submit(waits.right)
    await waits.session.ended(TurnId("t1"))


async def changed(waits: Waiting) -> None:
    """The file under the diff is another one now, and the question is asked again."""
    waits.shown[0] = "- older line\n+ new line"
    await waits.session.submit(waits.right)
    with anyio.fail_after(50):
        while (await next_asked(waits.session)).digest == waits.asked.digest:
            await waits.session.core.wait_for_change()


async def another_asks(waits: Waiting) -> None:
    await interrupted(waits)
    await waits.session.say(turn=TurnId("t2"))
    await waits.session.submit(Say(turn=TurnId("t3"), text="go"))
    await next_asked(waits.session)


@pytest.mark.parametrize("close", [interrupted, refused, done, changed, another_asks])
async def test_no_answer_counts_once_its_question_is_over(close: Closed) -> None:
    async with opened() as waits:
        await close(waits)
        began = list(waits.runner.began)
        for scope in ("once", "session", "always"):
            for verdict in ("allow", "deny"):
                forged = replace(waits.right, scope=scope, verdict=verdict)
                assert not await waits.accepts(forged)
                assert not await waits.accepts(replace(waits.earlier, scope=scope, verdict=verdict))
        assert waits.runner.began == began
        assert waits.runner.always == frozenset()
        assert waits.session.core.state.granted == frozenset()


async def test_after_a_restart_the_same_answer_counts_and_only_that() -> None:
    log = memory_log()
    async with opened(log=log) as before:
        pass
    runner = EchoRunner(tools=[send], shown=lambda _: SHOWS)
    async with life(SCRIPT, runner=runner, unattended=False, log=log) as session:
        waits = Waiting(session, runner, before.asked, before.earlier)
        forged = [one for _, one in forgeries(waits, before.earlier) if one != waits.right]
        assert [one for one in forged if await waits.accepts(one)] == []
        assert runner.began == []
        assert await waits.accepts(waits.right)
        assert isinstance(await session.ended(TurnId("t1")), TurnEnded)
    assert runner.began == [ACTION]
    assert outcomes(session.events)[before.asked.id] == ["ok"]


async def test_a_yes_that_was_not_used_in_time_is_none_and_cannot_be_given_again() -> None:
    log = memory_log()
    async with opened(log=log) as before:
        pass
    await log.append(ApprovalDecided(id=before.asked.id, verdict="allow"))
    runner = EchoRunner(tools=[send], shown=lambda _: SHOWS)
    async with life(SCRIPT, runner=runner, unattended=False, log=log) as session:
        clock = session.core.clock
        session.core.clock = lambda: clock() + timedelta(seconds=session.core.approval_s + 1)
        await session.submit(Continue())
        again = await next_asked(session)
        assert runner.began == []
        session.core.clock = clock
        waits = Waiting(session, runner, again, before.earlier)
        assert await waits.accepts(waits.right)
        await session.ended(TurnId("t1"))
        assert not await waits.accepts(waits.right)
    assert runner.began == [ACTION]


@pytest.mark.parametrize("scope", ["session", "always"])
async def test_what_has_no_pattern_is_allowed_once_or_not_at_all(scope: Any) -> None:
    """As everything that leaves under taint."""

    class Wary(EchoRunner):
        def judge(self, action: Action, given: PolicyContext) -> Verdict:
            verdict = super().judge(action, given)
            return replace(verdict, pattern="") if isinstance(verdict, Ask) else verdict

    runner = Wary(tools=[send])
    async with life(SCRIPT[1:], runner=runner, unattended=False) as session:
        await session.submit(Say(turn=TurnId("t1"), text="go"))
        asked = await next_asked(session)
        waits = Waiting(session, runner, asked, Decide(id=asked.id, digest="", verdict="allow"))
        assert not await waits.accepts(replace(waits.right, scope=scope))
        assert (runner.began, runner.always, session.core.state.granted) == ([], frozenset(), frozenset())
        assert await waits.accepts(waits.right)
        await session.ended(TurnId("t1"))
        assert runner.began == [ACTION]


async def test_of_many_answers_at_once_one_is_taken() -> None:
    async with opened() as waits:
        taken: list[bool] = []

        async def answer() -> None:
            with suppress(CommandRefused):
                await waits.session.submit(waits.right)
                taken.append(True)

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(answer)
        await waits.session.ended(TurnId("t1"))
        assert taken == [True]
        assert waits.runner.began[1:] == [ACTION]
        ends = [event for event in waits.session.all(ActionFinished) if event.id == waits.asked.id]
        assert len(ends) == 1


@settings(max_examples=200)
@given(
    digest=st.one_of(st.text(max_size=80), st.text("0123456789abcdef", min_size=64, max_size=64)),
    id_=st.one_of(st.none(), st.text(max_size=20)),
    scope=st.sampled_from(["once", "session", "always"]),
    verdict=st.sampled_from(["allow", "deny"]),
    words=st.text(max_size=20),
)
def test_nothing_that_can_be_guessed_is_an_answer(
    digest: str, id_: str | None, scope: Any, verdict: Any, words: str
) -> None:
    async def guess() -> None:
        async with opened() as waits:
            id_or_right = waits.asked.id if id_ is None else ActionId(id_)
            guessed = Decide(id=id_or_right, digest=digest, verdict=verdict, scope=scope, words=words)
            if (guessed.id, guessed.digest) != (waits.asked.id, waits.asked.digest):
                assert not await waits.accepts(guessed)
            assert len(waits.runner.began) == 1

    anyio.run(guess)
