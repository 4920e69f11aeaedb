"""Run turns for clients that speak another protocol.

A turn belongs to its session: it continues after the client disconnects, and its result can be read from the log later.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.clients.served_sessions import ServedSessions, status_now
from pinfold.app.clients.turn_reader import Called, Ended, Piece, Said, TurnReader
from pinfold.app.errors import SessionBusy
from pinfold.app.ownership.owner import Link
from pinfold.app.session.live_session import LiveSession
from pinfold.app.session.options import CallerTerms
from pinfold.engine import CommandRefused
from pinfold.events import (
    ActionId,
    Decide,
    Delta,
    DisplayRef,
    Entry,
    Interrupt,
    PinfoldError,
    Rewind,
    Say,
    TurnId,
    UserSpoke,
)
from pinfold.text import cap_text

_PICTURE = 4 << 20
"""Largest picture, in bytes, that is embedded in the text."""
_PICTURES = ("image/png", "image/jpeg", "image/svg+xml")
RESULT = 40_000
"""Characters that the model sees of a client tool's result."""


class TurnPlace(Struct, frozen=True, kw_only=True):
    """Locates a turn for later requests."""

    session: str
    turn: TurnId
    start: int
    """Sequence number of the last event before the turn."""
    tools: tuple[str, ...] = ()
    """Names of the client's tools."""
    after: int = 0
    """Sequence number of the last event before this request, if an earlier request began the turn."""
    answered: tuple[str, ...] = ()
    """Calls whose results came with this request."""
    one_call: bool = False
    """True if the client takes one call at a time."""


class Prompt(Struct, frozen=True, kw_only=True):
    """Content of a request: a message, or results of the calls a turn waits for."""

    say: Say | None = None
    results: dict[str, str] = {}
    """Results by call id."""
    at: TurnPlace | None = None
    """The turn that waits for the results."""


class TurnRun:
    """The pieces of a turn up to its end, or to a pause for the client. Any number of readers can follow them."""

    def __init__(self, place: TurnPlace) -> None:
        self.place = place
        self._pieces: list[Piece] = []
        self._news = anyio.Event()

    @property
    def has_ended(self) -> bool:
        return bool(self._pieces) and isinstance(self._pieces[-1], Ended)

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._news.set()
        self._news = anyio.Event()

    async def follow(self) -> AsyncGenerator[Piece]:
        """Yield all pieces, from the first to the end."""
        place = 0
        while True:
            while place == len(self._pieces):
                await self._news.wait()
            yield self._pieces[place]
            if isinstance(self._pieces[place], Ended):
                return
            place += 1


class CallerTurns:
    """Starts turns and follows each in its own task, so that a turn survives its client's disconnect."""

    def __init__(self, sessions: ServedSessions, *, on_call: Callable[[ActionId, TurnPlace], None]) -> None:
        """`on_call` gets each call that waits for a client."""
        self._sessions = sessions
        self._on_call = on_call
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, TurnId] = {}
        """Turns that wait for a client, by session."""
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def start(self, link: Link, prompt: Prompt, terms: CallerTerms) -> TurnRun:
        """Start or continue a turn. Raises SessionBusy, CommandRefused and other PinfoldErrors."""
        now, names = (await status_now(link)).seq, tuple(tool.name for tool in terms.tools)
        if prompt.at:
            names = tuple({*prompt.at.tools, *names})
            place = replace(prompt.at, after=now, answered=tuple(prompt.results))
        else:
            assert prompt.say is not None
            place = TurnPlace(session=link.session, turn=prompt.say.turn, start=now)
        place = replace(place, tools=names, one_call=terms.one_call)
        run = TurnRun(place)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def follow() -> None:
            try:
                async with self._one_at_a_time(link), self._sessions.turn_slot(), link.subscribe(place.start) as feed:
                    await self._follow(link, feed, prompt, terms, run=run, started=started)
            except PinfoldError as error:
                if not started.done():
                    started.set_exception(error)
                run.add(Ended(status="failed", error=str(error)))
            finally:  # no request may wait for a task that has ended
                if not started.done():
                    started.set_exception(SessionBusy("the server is ending"))
                if not run.has_ended:
                    run.add(Ended(status="failed", error="the server is ending", temporary=True))

        task = asyncio.create_task(follow())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await started
        return run

    def _one_at_a_time(self, link: Link) -> anyio.Lock:
        """Return the session's lock: its turns run one at a time, because each sets its own terms."""
        return self._locks.setdefault(link.session, anyio.Lock())

    async def _follow(
        self,
        link: Link,
        feed: AsyncIterator[Entry | Delta],
        prompt: Prompt,
        terms: CallerTerms,
        *,
        run: TurnRun,
        started: asyncio.Future[None],
    ) -> None:
        place, left = run.place, self._waiting.pop(link.session, None)
        only_answer = terms.answer_schema is not None or terms.must_call
        reader = TurnReader(place.turn, place.tools, only_answer=only_answer, one_call=place.one_call)
        if prompt.say and left:
            await link.submit(Interrupt(target=left))  # the client abandoned that turn
        if isinstance(link, LiveSession):
            await link.set_caller_terms(terms)
        elif terms != CallerTerms():
            raise CommandRefused(
                f"{link.session} is open in another process; close it there, "
                "so that the client's tools, answer format and instructions can be used"
            )
        if prompt.say:
            await link.submit(prompt.say)
        else:
            await _catch_up(feed, reader, place.after)
            if isinstance(link, LiveSession):
                await link.note_outside_text()
            await _answer_calls(link, reader, prompt.results)
        started.set_result(None)
        await self._pass_on(link, feed, reader, run)
        if isinstance(link, LiveSession):
            # Other front ends of the session cannot run the client's tools.
            await link.set_caller_terms(CallerTerms(instructions=terms.instructions))

    async def _pass_on(self, link: Link, feed: AsyncIterator[Entry | Delta], reader: TurnReader, run: TurnRun) -> None:
        async for item in feed:
            for piece in await _complete(link, reader, reader.read(item)):
                match piece:
                    case Called(id=call):
                        self._on_call(call, run.place)
                    case Ended(status="waiting"):
                        self._waiting[link.session] = run.place.turn
                    case _:
                        pass
                run.add(piece)
                if isinstance(piece, Ended):
                    return

    async def branch(self, place: TurnPlace) -> Link:
        """Return the session if this turn is its last, else a fork that continues after it. Files are not rewound."""
        link = await self._sessions.link(place.session)
        later = await _first_turn_after(link, place)
        if later is None:
            return link
        fork = await self._sessions.fork(place.session, attended=False)
        with suppress(CommandRefused):  # refused if no cell ran since
            await fork.submit(Rewind(turn=later, what="variables"))
        await fork.submit(Rewind(turn=later, what="chat"))
        return fork

    async def read_again(self, place: TurnPlace, *, only_answer: bool = False) -> AsyncGenerator[Piece]:
        """Yield the pieces of a turn so far, from the log; without an end while it runs."""
        link = await self._sessions.link(place.session)
        reader = TurnReader(place.turn, place.tools, only_answer=only_answer, one_call=place.one_call)
        async for entry in past_events(link, place.start):
            for piece in await _complete(link, reader, reader.read(entry)):
                if entry.seq > place.after:
                    yield piece
                    if isinstance(piece, Ended):
                        return
            if entry.seq == place.after:
                reader.start_over()
                for call in place.answered:
                    reader.take_digest(ActionId(call))

    async def cancel(self, place: TurnPlace) -> None:
        link = await self._sessions.link(place.session)
        self._waiting.pop(link.session, None)
        await link.submit(Interrupt(target=place.turn))


async def past_events(link: Link, after: int) -> AsyncGenerator[Entry]:
    """Yield the events after `after`, up to now."""
    now = (await status_now(link)).seq
    if now <= after:
        return
    async with link.subscribe(after) as feed:
        async for item in feed:
            if isinstance(item, Entry):
                yield item
                if item.seq >= now:
                    return


async def _first_turn_after(link: Link, place: TurnPlace) -> TurnId | None:
    async with aclosing(past_events(link, place.start)) as entries:
        async for entry in entries:
            if isinstance(entry.event, UserSpoke) and entry.event.turn != place.turn:
                return entry.event.turn
    return None


async def _catch_up(feed: AsyncIterator[Entry | Delta], reader: TurnReader, seq: int) -> None:
    async for item in feed:
        for _ in reader.read(item):
            pass
        if isinstance(item, Entry) and item.seq >= seq:
            break
    reader.start_over()


async def _answer_calls(link: Link, reader: TurnReader, results: Mapping[str, str]) -> None:
    """Submit the results. Raises CommandRefused for a call that does not wait."""
    for id_, text in results.items():
        digest = reader.take_digest(ActionId(id_))
        if digest is None:
            raise CommandRefused(f"no call {id_} waits for a result in {link.session}")
        await link.submit(Decide(id=ActionId(id_), digest=digest, verdict="allow", words=cap_text(text, RESULT)))


async def _complete(link: Link, reader: TurnReader, pieces: Iterable[Piece]) -> list[Piece]:
    """Add the pictures that the turn displayed, as markdown after its answer."""
    completed: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Ended) and piece.status == "completed" and not reader.only_answer:
            completed += [Said(text=text, message=reader.message) for text in await _pictures(link, reader.displays)]
        completed.append(piece)
    return completed


async def _pictures(link: Link, displays: Iterable[DisplayRef]) -> list[str]:
    texts: list[str] = []
    for display in displays:
        mime = next((kind for kind in _PICTURES if kind in display.mime), None)
        if mime is None:
            continue
        data = await link.blob(display.mime[mime])
        if len(data) > _PICTURE:
            texts.append(f"\n\n[A picture of {len(data):,} bytes is in session {link.session}.]")
        else:
            texts.append(f"\n\n![picture](data:{mime};base64,{base64.b64encode(data).decode()})")
    return texts
