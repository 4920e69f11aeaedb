"""The sessions API: sessions, commands and events. `contents_api` has what a session contains."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias, get_args

import anyio.to_thread
from msgspec import Meta, Struct
from starlette.responses import Response

from pinfold import __version__
from pinfold.app import SessionStatus, StoredSession, configure, rewind
from pinfold.app.clients import ServedSessions, status_now
from pinfold.app.models import list_model_names
from pinfold.events import (
    ActionId,
    Clear,
    Command,
    Compact,
    Configure,
    Continue,
    Decide,
    Execute,
    Image,
    Interrupt,
    Json,
    Mode,
    Redo,
    Rename,
    Rewind,
    Say,
    SessionRewound,
    TurnId,
    Undo,
    What,
    entry_line,
    new_action_id,
    new_turn_id,
    parse_json,
)
from pinfold.front.http_server import only_value
from pinfold.front.server.endpoints import AnyEndpoint, Call, Endpoint, Input, Nothing
from pinfold.front.server.event_stream import EventStream, stream_events

_LIMIT = 500
_DEMO = "pinfold-demo"
"""The folder of the demo, in the user's home."""


class SessionRecord(Struct, frozen=True, kw_only=True):
    """What is known of a session without opening it."""

    id: str
    title: str
    named: bool
    """The title is the user's; otherwise it is the first message."""
    workspace: str
    began: str
    changed: str
    events: int
    size: int
    """Bytes on disk."""
    live: bool
    cut_off: bool
    """The last turn has no end yet."""
    source: str | None = None
    """The session it was forked from."""
    matches: tuple[str, ...] = ()
    """Lines in which the searched words were found."""
    status: SessionStatus | None = None
    """Status of a live session; given only for a single session, not in lists."""


def record_of(stored: StoredSession, matches: Iterable[str] = (), status: SessionStatus | None = None) -> SessionRecord:
    about = stored.summary
    return SessionRecord(
        id=stored.id,
        title=about.title,
        named=about.named,
        workspace=about.workspace,
        began=about.began,
        changed=about.last,
        events=about.events,
        size=stored.size,
        live=stored.owner is not None,
        cut_off=about.cut_off,
        source=about.source or None,
        matches=tuple(matches),
        status=status,
    )


# --- the server


class Example(Struct, frozen=True):
    title: str
    prompt: str


class About(Struct, frozen=True, kw_only=True):
    version: str
    workspace: str
    model: str
    """Model of new sessions; empty if none is set."""
    mode: str
    models: tuple[str, ...]
    modes: tuple[str, ...]
    examples: tuple[Example, ...]
    """Prompts for the demo table."""


EXAMPLES = (
    Example("Summarise a table", "How much did each region sell? The table is sales.csv."),
    Example("Draw a picture", "Draw the revenue by month from sales.csv."),
    Example("Change a file, then undo it", "Remove the column discount from sales.csv."),
)


async def about(call: Call[Nothing, Nothing]) -> About:
    terms = call.sessions.terms
    names = await anyio.to_thread.run_sync(list_model_names)
    model = str(terms.flags.get("model.name") or "")
    return About(
        version=__version__,
        workspace=str(terms.workspace or Path.cwd()),
        model=model,
        mode=str(terms.flags.get("run.mode") or "auto"),
        models=tuple(dict.fromkeys(filter(None, (model, *names)))),
        modes=get_args(Mode),
        examples=EXAMPLES,
    )


# --- sessions


class SessionList(Struct, frozen=True):
    sessions: tuple[SessionRecord, ...]


class ListQuery(Input, kw_only=True, frozen=True):
    search: str = ""
    limit: int = 50


async def list_sessions(call: Call[ListQuery, Nothing]) -> SessionList:
    limit = max(1, min(call.query.limit, _LIMIT))
    store = call.sessions.store
    if words := call.query.search.split():
        found = await anyio.to_thread.run_sync(store.search, words)
        return SessionList(tuple(record_of(one, (hit.text for hit in hits[:5])) for one, hits in found[:limit]))
    return SessionList(tuple(map(record_of, await anyio.to_thread.run_sync(store.sessions, limit))))


class NewSession(Input, kw_only=True, frozen=True):
    title: str = ""
    model: str | None = None
    mode: Mode | None = None
    workspace: Annotated[str, Meta(pattern="^/")] | None = None
    """Absolute path of a folder. Default: the server's folder."""
    demo: bool = False
    """Work in a separate folder that holds the demo table."""


async def create_session(call: Call[Nothing, NewSession]) -> SessionRecord:
    given = call.body
    workspace = Path(given.workspace) if given.workspace else None
    if given.demo:
        from pinfold.app.diagnostics.demo import provide_table

        workspace = Path.home() / _DEMO
        workspace.mkdir(exist_ok=True)
        await anyio.to_thread.run_sync(provide_table, workspace)
    link = await call.sessions.create(
        title=given.title, model=given.model, mode=given.mode, workspace=workspace, attended=True, client=call.client
    )
    return await _record(call.sessions, link.session)


async def get_session(call: Call[Nothing, Nothing]) -> SessionRecord:
    return await _record(call.sessions, call.session)


async def _record(sessions: ServedSessions, name: str) -> SessionRecord:
    session, _ = await sessions.find(name)
    stored = await anyio.to_thread.run_sync(sessions.store.read, session)
    status = await status_now(await sessions.link(session)) if stored.owner is not None else None
    return record_of(stored, status=status)


class SessionChange(Input, kw_only=True, frozen=True):
    title: str | None = None
    model: str | None = None
    mode: Mode | None = None
    checkpoints: bool | None = None


async def change_session(call: Call[Nothing, SessionChange]) -> SessionRecord:
    given = call.body
    session, folder = await call.sessions.find(call.session)
    if given.title is not None:
        await configure(folder, session, Rename(title=given.title))
    if (given.model, given.mode, given.checkpoints) != (None, None, None):
        link = await call.sessions.link(session)
        await link.submit(Configure(model=given.model, mode=given.mode, checkpoints=given.checkpoints))
    return await _record(call.sessions, session)


async def remove_session(call: Call[Nothing, Nothing]) -> None:
    await call.sessions.remove(call.session)


class ForkRequest(Input, kw_only=True, frozen=True):
    title: str = ""
    to: int | None = None
    """Continue with the variables as they were after this cell; 0 is the start. Files stay as they are."""


async def fork_session(call: Call[Nothing, ForkRequest]) -> SessionRecord:
    link = await call.sessions.fork(call.session, title=call.body.title, to=call.body.to)
    return await _record(call.sessions, link.session)


# --- commands and events


class Accepted(Struct, frozen=True):
    id: str
    """Id of the turn or cell that the command begins; empty for other commands."""
    seq: int
    """Events after this number show the effects of the command."""


class SayRequest(Input, kw_only=True, frozen=True, tag_field="kind", tag="Say"):
    """Begin a turn; an id is chosen if none is given."""

    text: str
    turn: Annotated[str, Meta(pattern="^(t_[0-9a-f]{12})?$")] = ""
    images: tuple[Image, ...] = ()


class ExecuteRequest(Input, kw_only=True, frozen=True, tag_field="kind", tag="Execute"):
    """Run a cell without a model; an id is chosen if none is given."""

    code: str
    id: Annotated[str, Meta(pattern="^(a_[0-9a-f]{12})?$")] = ""
    timeout_s: Annotated[float, Meta(gt=0)] | None = None


SentCommand: TypeAlias = (
    SayRequest | ExecuteRequest | Continue | Decide | Interrupt | Undo | Rewind | Redo | Clear | Compact | Configure
)


async def submit_command(call: Call[Nothing, SentCommand]) -> Accepted:
    command: Command
    match call.body:
        case SayRequest(text=text, images=images) as given:
            command = Say(turn=TurnId(given.turn) if given.turn else new_turn_id(), text=text, images=images)
        case ExecuteRequest(code=code, timeout_s=timeout_s) as given:
            command = Execute(id=ActionId(given.id) if given.id else new_action_id(), code=code, timeout_s=timeout_s)
        case other:
            command = other
    link = await call.sessions.link(call.session, attended=True)
    seq = (await status_now(link)).seq
    if isinstance(command, Say | Execute):
        call.sessions.check_turns()
    await link.submit(command)
    id_ = command.turn if isinstance(command, Say) else command.id if isinstance(command, Execute) else ""
    return Accepted(id_, seq)


class UndoRequest(Input, kw_only=True, frozen=True):
    to: int | None = None
    what: What = "all"


async def undo(call: Call[Nothing, UndoRequest]) -> SessionRewound:
    return await _rewind(call, Undo(to=call.body.to, what=call.body.what))


async def redo(call: Call[Nothing, Nothing]) -> SessionRewound:
    return await _rewind(call, Redo())


async def _rewind(call: Call[Nothing, UndoRequest] | Call[Nothing, Nothing], command: Undo | Redo) -> SessionRewound:
    link = await call.sessions.link(call.session, attended=True)
    return await rewind(link, command, (await status_now(link)).seq)


class EventsQuery(Input, kw_only=True, frozen=True):
    after: int = 0


class EventList(Struct, frozen=True):
    events: tuple[dict[str, Json], ...]


async def events(call: Call[EventsQuery, Nothing]) -> Response | EventList:
    after = call.query.after
    if only_value(call.request.headers, "accept") == "application/json":
        return EventList(await anyio.to_thread.run_sync(_events_after, call.sessions, call.session, after))
    resumed = only_value(call.request.headers, "last-event-id")
    if resumed.isdecimal():
        after = int(resumed)
    link = await call.sessions.link(call.session, attended=True)
    return EventStream(stream_events(link, after))


def _events_after(sessions: ServedSessions, session: str, after: int) -> tuple[dict[str, Json], ...]:
    return tuple(parse_json(entry_line(one)) for one in sessions.entries(session) if one.seq > after)


_ONE = "/api/sessions/{session}"


ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint("GET", "/api/about", "What the server offers", about, answer=About),
    Endpoint(
        "GET", "/api/sessions", "List sessions, or search them", list_sessions, query=ListQuery, answer=SessionList
    ),
    Endpoint(
        "POST", "/api/sessions", "Begin a session", create_session, body=NewSession, answer=SessionRecord, status=201
    ),
    Endpoint("GET", _ONE, "Get a session, without opening it", get_session, answer=SessionRecord),
    Endpoint("PATCH", _ONE, "Change a session's settings", change_session, body=SessionChange, answer=SessionRecord),
    Endpoint("DELETE", _ONE, "Delete a session with all it stored", remove_session, status=204),
    Endpoint(
        "POST",
        f"{_ONE}/fork",
        "Fork a session",
        fork_session,
        body=ForkRequest,
        answer=SessionRecord,
        status=201,
    ),
    Endpoint(
        "POST", f"{_ONE}/commands", "Submit a command", submit_command, body=SentCommand, answer=Accepted, status=202
    ),
    Endpoint("POST", f"{_ONE}/undo", "Undo cells", undo, body=UndoRequest, answer=SessionRewound),
    Endpoint("POST", f"{_ONE}/redo", "Reverse the last undo", redo, answer=SessionRewound),
    Endpoint(
        "GET",
        f"{_ONE}/events",
        "Follow a session's events",
        events,
        query=EventsQuery,
        answer=EventList,
        media="text/event-stream",
    ),
)
