"""The agent as an editor sees it: what it can do, and the sessions that are open in the editor."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from pinfold.events import Json, PinfoldError, SessionId, convert, new_session_id
from pinfold.front.acp.connection import AUTH_REQUIRED, INVALID_PARAMS, NOT_FOUND, Connection, Params, Reply, RpcError
from pinfold.front.acp.handshake import SIGN_IN, describe_agent, has_forms

# Editors wait for the answer to `initialize`, so everything of weight is imported after it.
if TYPE_CHECKING:
    from pinfold.app import Options
    from pinfold.front.acp.session import EditorSession

logger = logging.getLogger(__name__)
_PAGE = 100
"""Sessions of one page of the list."""
_PROBE_S = 1.0
"""How long local model servers may take to say what they have."""
_CLOSE_S = 15.0
"""How long all sessions may take to close."""
_Given = TypeVar("_Given", bound=Struct)
_Models: TypeAlias = tuple[tuple[str, str], ...]


class _Session(Struct, rename="camel", kw_only=True):
    session_id: str


class _Place(Struct, rename="camel", kw_only=True):
    cwd: str
    mcp_servers: list[dict[str, Json]] | None = None
    additional_directories: list[str] | None = None


class _SessionPlace(_Place, rename="camel", kw_only=True):
    session_id: str


class _SetMode(_Session, rename="camel", kw_only=True):
    mode_id: str


class _SetOption(_Session, rename="camel", kw_only=True):
    config_id: str
    value: str


class _List(Struct, rename="camel", kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class _Prompt(_Session, rename="camel", kw_only=True):
    prompt: Json


class EditorAgent:
    def __init__(
        self,
        connection: Connection,
        tasks: TaskGroup,
        flags: Mapping[str, Any],
        seen: Mapping[str, Any],
        log_level: str | None = None,
    ) -> None:
        """`flags` by configuration key; `seen`: options of what sessions may see of the host."""
        self._connection = connection
        self._tasks = tasks
        self._flags = flags
        self._seen = seen
        self._log_level = log_level
        self._open: dict[SessionId, EditorSession] = {}
        self._known: set[SessionId] = set()
        """Sessions that were open here."""
        self._made: set[SessionId] = set()
        """Sessions that began here; those in which nothing was said are removed at the end."""
        self._has_forms = False
        self._models: _Models | None = None
        connection.requests |= {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/delete": self._delete,
            "session/close": self._close,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
        }
        connection.notifications["session/cancel"] = self._cancel

    async def end(self) -> None:
        """Close every session; those in which nothing was said are removed."""
        with anyio.move_on_after(_CLOSE_S, shield=True):
            for session in list(self._open.values()):
                await session.close()
        for id_ in self._made:
            await anyio.to_thread.run_sync(_remove_unused, id_)

    # Before sessions

    async def _initialize(self, params: Params, reply: Reply) -> None:
        if not isinstance(params.get("protocolVersion"), int):
            raise RpcError(INVALID_PARAMS, "initialize: protocolVersion is needed, a number")
        await reply(describe_agent())
        await self.prepare(params)

    async def prepare(self, params: Params) -> None:
        """After `initialize`: import what the first session needs, in a thread."""
        self._has_forms = has_forms(params)
        await anyio.to_thread.run_sync(self._import_sessions)

    def _import_sessions(self) -> None:
        from pinfold.app import start_operator_log

        start_operator_log(self._log_level)
        for name in ("session", "commands", "prompts"):
            import_module(f"pinfold.front.acp.{name}")

    async def _authenticate(self, params: Params, reply: Reply) -> None:
        if params.get("methodId") != SIGN_IN:
            raise RpcError(INVALID_PARAMS, f"no sign-in {params.get('methodId')!r}; there is {SIGN_IN!r}")
        await reply({})

    # Sessions

    async def _new(self, params: Params, reply: Reply) -> None:
        place = _read(params, _Place)
        id_ = new_session_id()
        self._made.add(id_)
        options = await anyio.to_thread.run_sync(self._new_options, id_, place)
        session = await self._start(id_, await _with_model(options))
        await reply({"sessionId": id_, **session.state()})
        await self._announce(session)

    async def _load(self, params: Params, reply: Reply) -> None:
        place = _read(params, _SessionPlace)
        if session := self._open.get(SessionId(place.session_id)):
            await session.replay()
        else:
            session = await self._reopen(place, replay=True)
        await self._send_commands(session)
        await reply(session.state())
        await session.announce()

    async def _resume(self, params: Params, reply: Reply) -> None:
        place = _read(params, _SessionPlace)
        session = self._open.get(SessionId(place.session_id)) or await self._reopen(place, replay=False)
        await reply(session.state())
        await self._announce(session)

    async def _fork(self, params: Params, reply: Reply) -> None:
        from pinfold.app import SessionStore, fork

        place = _read(params, _SessionPlace)
        id_, _ = await anyio.to_thread.run_sync(_find, place.session_id)
        new, _ = await fork(SessionStore(), id_)
        session = await self._reopen(_SessionPlace(session_id=new, cwd=place.cwd, mcp_servers=place.mcp_servers))
        await reply({"sessionId": new, **session.state()})
        await self._announce(session)

    async def _list(self, params: Params, reply: Reply) -> None:
        given = _read(params, _List)
        await reply(await anyio.to_thread.run_sync(_list_sessions, given))

    async def _delete(self, params: Params, reply: Reply) -> None:
        from pinfold.app import NoSuchSession, SessionStore

        name = _read(params, _Session).session_id
        if session := self._open.get(SessionId(name)):
            await session.close()
        try:
            id_, _ = await anyio.to_thread.run_sync(_find, name)
            await anyio.to_thread.run_sync(SessionStore().remove, id_)
        except (NoSuchSession, RpcError):
            pass  # it is gone already
        await reply({})

    async def _close(self, params: Params, reply: Reply) -> None:
        name = SessionId(_read(params, _Session).session_id)
        if session := self._open.get(name):
            await session.close()
        elif name not in self._known:
            raise RpcError(NOT_FOUND, f"{name!r} is not open here")
        await reply({})

    async def _prompt(self, params: Params, reply: Reply) -> None:
        from pinfold.app import OwnerGone
        from pinfold.front.acp.commands import run_command
        from pinfold.front.acp.prompts import command_in

        given = _read(params, _Prompt)
        session = await self._session(given.session_id)
        name, rest = command_in(given.prompt)
        blocks = given.prompt
        if name:
            text = await run_command(session, name, rest)
            blocks = [{"type": "text", "text": text}] if text else None
        if blocks is None:
            await reply({"stopReason": "end_turn"})
            return
        try:
            result = await session.prompt(blocks)
        except OwnerGone:  # the process that ran the session ended just now: it goes on here
            await session.close()
            result = await (await self._session(given.session_id)).prompt(blocks)
        await reply(result)

    async def _cancel(self, params: Params) -> None:
        if session := self._open.get(SessionId(_read(params, _Session).session_id)):
            await session.cancel()

    async def _set_mode(self, params: Params, reply: Reply) -> None:
        given = _read(params, _SetMode)
        await (await self._session(given.session_id)).set_mode(given.mode_id)
        await reply({})

    async def _set_config_option(self, params: Params, reply: Reply) -> None:
        given = _read(params, _SetOption)
        session = await self._session(given.session_id)
        match given.config_id:
            case "mode":
                await session.set_mode(given.value)
            case "model":
                await session.set_model(given.value)
            case other:
                raise RpcError(INVALID_PARAMS, f"no option {other!r}; there are mode and model")
        await reply({"configOptions": session.config_options()})

    # Opening

    async def _session(self, name: str) -> EditorSession:
        """One that is open, or was: its owner may have ended meanwhile."""
        id_ = SessionId(name)
        if session := self._open.get(id_):
            return session
        if id_ not in self._known:
            raise RpcError(NOT_FOUND, f"the session {name!r} is not open; load it, or begin a new one")
        session = await self._reopen(_SessionPlace(session_id=name, cwd=""))
        await session.announce()
        return session

    async def _reopen(self, place: _SessionPlace, *, replay: bool = False) -> EditorSession:
        id_, folder = await anyio.to_thread.run_sync(_find, place.session_id)
        options = await anyio.to_thread.run_sync(self._resume_options, id_, folder, place)
        return await self._start(id_, options, replay=replay)

    async def _start(self, id_: SessionId, options: Options, *, replay: bool = False) -> EditorSession:
        from pinfold.app import SessionStore
        from pinfold.front.acp.session import EditorSession

        folder = SessionStore().folder_of(id_)
        session = EditorSession(self._connection, folder, id_, options, has_forms=self._has_forms)
        self._models = self._models if self._models is not None else await _list_models()
        session.models = self._models
        await self._tasks.start(self._keep_open, session, replay)
        return session

    async def _keep_open(self, session: EditorSession, replay: bool, *, task_status: TaskStatus[None]) -> None:
        self._known.add(session.id)
        self._open[session.id] = session
        try:
            await session.run(replay=replay, task_status=task_status)
        finally:
            del self._open[session.id]

    def _new_options(self, id_: SessionId, place: _Place) -> Options:
        from pinfold.app import load_config, new_session_options

        flags = dict(self._flags)
        if "run.mode" not in load_config(flags=flags).origins:
            flags["run.mode"] = "ask"
        return self._complete(new_session_options(id_, _folder(place.cwd), flags), place)

    def _resume_options(self, id_: SessionId, folder: Path, place: _SessionPlace) -> Options:
        from pinfold.app import ConfigError, SessionStore, resume_options

        options = resume_options(id_, folder, None, self._flags)
        known = SessionStore().summary_of(id_).workspace
        if place.cwd and known and _folder(place.cwd) != Path(known):
            raise ConfigError(f"{id_} is a session of {known}, not of {place.cwd}")
        return self._complete(options, place)

    def _complete(self, options: Options, place: _Place) -> Options:
        from msgspec.structs import replace

        from pinfold.app.session.mcp import client_servers

        servers, notices = client_servers(place.mcp_servers or [])
        if place.additional_directories:
            notices = (*notices, "further folders of the editor are not used; start `pinfold acp` with --mount PATH")
        toolbox = replace(options.toolbox, client_mcp=servers)
        return replace(options, unattended=False, toolbox=toolbox, notices=(*options.notices, *notices), **self._seen)

    async def _announce(self, session: EditorSession) -> None:
        await self._send_commands(session)
        await session.announce()

    async def _send_commands(self, session: EditorSession) -> None:
        from pinfold.front.acp.commands import list_commands

        update = {"sessionUpdate": "available_commands_update", "availableCommands": await list_commands(session)}
        await self._connection.notify("session/update", {"sessionId": session.id, "update": update})


def _read(params: Params, kind: type[_Given]) -> _Given:
    """Raises msgspec.ValidationError."""
    return convert(dict(params), kind)


def _folder(cwd: str) -> Path:
    if not Path(cwd).is_absolute():
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, and {cwd!r} is none")
    return Path(cwd).resolve()


def _find(name: str) -> tuple[SessionId, Path]:
    """By its whole id: no title and no beginning will do. Raises RpcError."""
    from pinfold.app import NoSuchSession, SessionStore

    try:
        id_, folder = SessionStore().find(name)
    except NoSuchSession:
        id_, folder = SessionId(""), Path()
    if id_ != name:
        raise RpcError(NOT_FOUND, f"there is no session {name!r}; session/list names them")
    return id_, folder


def _list_sessions(given: _List) -> Json:
    from pinfold.app import SessionStore
    from pinfold.app.storage import list_nodes
    from pinfold.front.pages import title_of

    start = int(given.cursor) if given.cursor and given.cursor.isdecimal() else 0
    wanted = str(_folder(given.cwd)) if given.cwd else ""
    nodes = [node for node in list_nodes(SessionStore()) if node.title and wanted in ("", node.workspace)]
    page = nodes[start : start + _PAGE]
    found: Json = {
        "sessions": [
            {"sessionId": node.id, "cwd": node.workspace, "title": title_of(node), "updatedAt": _time(node.last)}
            for node in page
        ]
    }
    more = start + _PAGE
    return found | ({"nextCursor": str(more)} if more < len(nodes) else {})


def _time(at: str) -> str:
    return at if at.endswith("Z") or "+" in at else f"{at}Z"


async def _with_model(options: Options) -> Options:
    """Raises RpcError if there is no model at all."""
    from msgspec.structs import replace

    from pinfold.app import ConfigError
    from pinfold.app.models import choose_model

    if options.model:
        return options
    try:
        choice = await choose_model()
    except ConfigError as error:
        raise RpcError(AUTH_REQUIRED, str(error)) from error
    return replace(options, model=choice.name, notices=(*options.notices, choice.why))


async def _list_models() -> _Models:
    """Those that can be had here, each with a few words. No provider is asked."""
    from pinfold.app import load_config
    from pinfold.app.models import SUGGESTED, reachable_models

    found: dict[str, str] = {}
    try:
        aliases = load_config().config.models.aliases
        found |= {name: f"alias of {model}" for name, model in aliases.items()}
        with anyio.move_on_after(_PROBE_S):
            there = await reachable_models()
            found |= {one.weights.name: f"{one.weights.title}, runs here" for one in there.inside if one.path}
            found |= {server.name_of(one): f"at {server.base_url}" for server in there.servers for one in server.models}
            held = {key.provider for key in there.keys}
            found |= {name: f"sends the chat to {of}" for of, name in SUGGESTED.items() if of in held}
    except PinfoldError as error:
        logger.info("models are not listed: %s", error)
    return tuple(found.items())


def _remove_unused(id_: SessionId) -> None:
    """Unless something was said in it, here or elsewhere."""
    from pinfold.app import SessionBusy, SessionStore

    store = SessionStore()
    with suppress(SessionBusy, OSError):
        if store.folder_of(id_).is_dir() and not store.summary_of(id_).title:
            store.remove(id_)
