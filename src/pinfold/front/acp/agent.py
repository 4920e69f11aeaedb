"""The agent for an editor: answers the editor's requests and keeps the sessions that it has open."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app import (
    ConfigError,
    NoSuchSession,
    Options,
    OwnerGone,
    SessionBusy,
    SessionStore,
    fork,
    load_config,
    new_session_options,
    resume_options,
)
from pinfold.app.models import SUGGESTED, choose_model, reachable_models
from pinfold.app.session.mcp import client_servers
from pinfold.app.storage import list_nodes
from pinfold.events import Configure, Json, PinfoldError, SessionId, convert, new_session_id
from pinfold.front.acp.commands import list_commands, run_command
from pinfold.front.acp.connection import AUTH_REQUIRED, INVALID_PARAMS, NOT_FOUND, Connection, Params, Reply, RpcError
from pinfold.front.acp.handshake import SIGN_IN, describe_agent, has_forms
from pinfold.front.acp.session import EditorSession, command_in
from pinfold.front.flags import Flags
from pinfold.front.pages import title_of
from pinfold.front.signals import stop_signals

logger = logging.getLogger(__name__)
_PAGE = 100
"""Sessions on one page of the list."""
_PROBE_S = 1.0
"""How long local model servers may take to list their models."""
_CLOSE_S = 15.0
"""How long all sessions may take to close."""
_Models: TypeAlias = tuple[tuple[str, str], ...]


class _Given(Struct, rename="camel", kw_only=True):
    """The parameters of all requests. A parameter that was not given is empty."""

    session_id: SessionId = SessionId("")
    cwd: str | None = None
    mcp_servers: list[dict[str, Json]] | None = None
    additional_directories: list[str] | None = None
    prompt: Json = None
    mode_id: str = ""
    config_id: str = ""
    value: str = ""
    cursor: str | None = None
    method_id: str = ""


_Handler: TypeAlias = Callable[[_Given, Reply], Awaitable[None]]


class EditorAgent:
    def __init__(
        self, connection: Connection, tasks: TaskGroup, flags: Flags, mounted: Flags, *, has_forms: bool
    ) -> None:
        """`flags` are by configuration key; `mounted` are the session options for what sessions see of the host."""
        self._connection = connection
        self._tasks = tasks
        self._flags = flags
        self._mounted = mounted
        self._open: dict[SessionId, EditorSession] = {}
        self._known: set[SessionId] = set()
        """Sessions that are or were open in this process."""
        self._made: set[SessionId] = set()
        """Sessions that began in this process; those in which nothing was said are removed at the end."""
        self._has_forms = has_forms
        """True if the editor can show forms."""
        self._models: _Models | None = None
        self._opening = anyio.Lock()
        of_sessions: dict[str, _Handler] = {
            "new": self._new,
            "load": self._load,
            "resume": self._resume,
            "fork": self._fork,
            "list": self._list,
            "delete": self._delete,
            "close": self._close,
            "prompt": self._prompt,
            "set_mode": self._set_mode,
            "set_config_option": self._set_config_option,
        }
        connection.requests["initialize"] = self._initialize
        connection.requests["authenticate"] = partial(self._handle, self._authenticate)
        for name, handler in of_sessions.items():
            connection.requests[f"session/{name}"] = partial(self._handle, handler)
        connection.notifications["session/cancel"] = self._cancel

    async def _handle(self, handler: _Handler, params: Params, reply: Reply) -> None:
        await handler(_read(params), reply)

    async def end(self) -> None:
        """Close every session; those in which nothing was said are removed."""
        with anyio.move_on_after(_CLOSE_S, shield=True):
            for session in list(self._open.values()):
                await session.close()
        for id_ in self._made:
            await anyio.to_thread.run_sync(_remove_unused, id_)

    # Handshake

    async def _initialize(self, params: Params, reply: Reply) -> None:
        if not isinstance(params.get("protocolVersion"), int):
            raise RpcError(INVALID_PARAMS, "initialize: protocolVersion must be a number")
        await reply(describe_agent())
        self._has_forms = has_forms(params)

    async def _authenticate(self, given: _Given, reply: Reply) -> None:
        if given.method_id != SIGN_IN:
            raise RpcError(INVALID_PARAMS, f"unknown sign-in method {given.method_id!r}; use {SIGN_IN!r}")
        await reply({})

    # Sessions

    async def _new(self, given: _Given, reply: Reply) -> None:
        id_ = new_session_id()
        self._made.add(id_)
        options = await anyio.to_thread.run_sync(self._new_options, id_, given)
        session = await self._start(id_, await _with_model(options))
        await reply({"sessionId": id_, **session.state()})
        await self._announce(session)

    async def _load(self, given: _Given, reply: Reply) -> None:
        session = await self._reopen(given, replay=True)
        await _send_commands(session)
        await reply(session.state())
        await session.announce()

    async def _resume(self, given: _Given, reply: Reply) -> None:
        session = await self._reopen(given)
        await reply(session.state())
        await self._announce(session)

    async def _fork(self, given: _Given, reply: Reply) -> None:
        folder = await anyio.to_thread.run_sync(_find, given.session_id)
        new, _ = await fork(SessionStore(), SessionId(folder.name))
        session = await self._reopen(replace(given, session_id=new))
        await reply({"sessionId": new, **session.state()})
        await self._announce(session)

    async def _list(self, given: _Given, reply: Reply) -> None:
        await reply(await anyio.to_thread.run_sync(_list_sessions, given))

    async def _delete(self, given: _Given, reply: Reply) -> None:
        if session := self._open.get(given.session_id):
            await session.close()
        with suppress(RpcError):  # it is gone already
            await anyio.to_thread.run_sync(_find, given.session_id)
            await anyio.to_thread.run_sync(SessionStore().remove, given.session_id)
        await reply({})

    async def _close(self, given: _Given, reply: Reply) -> None:
        if session := self._open.get(given.session_id):
            await session.close()
        elif given.session_id not in self._known:
            raise RpcError(NOT_FOUND, f"{given.session_id!r} is not open here")
        await reply({})

    async def _prompt(self, given: _Given, reply: Reply) -> None:
        session = await self._session(given.session_id)
        name, rest = command_in(given.prompt)
        blocks = given.prompt
        if name:
            text = await run_command(session, name, rest)
            if text is None:
                await reply({"stopReason": "end_turn"})
                return
            blocks = [{"type": "text", "text": text}]
        try:
            result = await session.prompt(blocks)
        except OwnerGone:  # the session's owner has just ended, so this process becomes it
            await session.close()
            result = await (await self._session(given.session_id)).prompt(blocks)
        await reply(result)

    async def _cancel(self, params: Params) -> None:
        if session := self._open.get(_read(params).session_id):
            await session.cancel()

    async def _set_mode(self, given: _Given, reply: Reply) -> None:
        await self._change_mode(given.session_id, given.mode_id)
        await reply({})

    async def _change_mode(self, id_: SessionId, mode: str) -> EditorSession:
        session = await self._session(id_)
        if options := session.options_for(mode):
            async with self._opening:
                await session.close()
                session = await self._start(id_, options)
            await session.announce()
        await session.set_mode(mode)
        return session

    async def _set_config_option(self, given: _Given, reply: Reply) -> None:
        session = await self._session(given.session_id)
        match given.config_id:
            case "mode":
                session = await self._change_mode(given.session_id, given.value)
            case "model":
                await session.change(Configure(model=given.value))
            case other:
                raise RpcError(INVALID_PARAMS, f"unknown option {other!r}; the options are mode and model")
        await reply({"configOptions": session.config_options()})

    # Opening

    async def _session(self, id_: SessionId) -> EditorSession:
        """Return an open session; open it again if its owner has ended meanwhile."""
        if session := self._open.get(id_):
            return session
        if id_ not in self._known:
            raise RpcError(NOT_FOUND, f"the session {id_!r} is not open; load it, or begin a new one")
        session = await self._reopen(_Given(session_id=id_))
        await session.announce()
        return session

    async def _reopen(self, given: _Given, *, replay: bool = False) -> EditorSession:
        """Open a stored session. `replay`: send all its past events."""
        async with self._opening:
            if session := self._open.get(given.session_id):
                if replay:
                    await session.replay()
                return session
            folder = await anyio.to_thread.run_sync(_find, given.session_id)
            options = await anyio.to_thread.run_sync(self._resume_options, folder, given)
            return await self._start(given.session_id, options, replay=replay)

    async def _start(self, id_: SessionId, options: Options, *, replay: bool = False) -> EditorSession:
        self._models = self._models if self._models is not None else await _list_models()
        folder = SessionStore().folder_of(id_)
        session = EditorSession(self._connection, folder, id_, options, self._models, has_forms=self._has_forms)
        await self._tasks.start(self._keep_open, session, replay)
        self._known.add(id_)
        if not session.closed.is_set():
            self._open[id_] = session
        return session

    async def _keep_open(self, session: EditorSession, replay: bool, *, task_status: TaskStatus[None]) -> None:
        try:
            await session.run(replay=replay, task_status=task_status)
        finally:
            self._open.pop(session.id, None)

    def _new_options(self, id_: SessionId, given: _Given) -> Options:
        flags = dict(self._flags)
        if "run.mode" not in load_config(flags={"run.mode": flags["run.mode"]}).origins:
            flags["run.mode"] = "ask"
        return self._complete(new_session_options(id_, _folder(given.cwd), flags), given)

    def _resume_options(self, folder: Path, given: _Given) -> Options:
        id_ = given.session_id
        known = SessionStore().summary_of(id_).workspace
        if given.cwd and known and _folder(given.cwd) != Path(known):
            raise ConfigError(f"{id_} is a session of {known}, not of {given.cwd}")
        return self._complete(resume_options(id_, folder, None, self._flags), given)

    def _complete(self, options: Options, given: _Given) -> Options:
        servers, notices = client_servers(given.mcp_servers or [])
        if given.additional_directories:
            notices = (*notices, "the editor's other folders are not mounted; start `pinfold acp` with --mount PATH")
        toolbox = replace(options.toolbox, client_mcp=servers)
        return replace(
            options, unattended=False, toolbox=toolbox, notices=(*options.notices, *notices), **self._mounted
        )

    async def _announce(self, session: EditorSession) -> None:
        await _send_commands(session)
        await session.announce()


async def _send_commands(session: EditorSession) -> None:
    commands = await list_commands(session)
    await session.send({"sessionUpdate": "available_commands_update", "availableCommands": commands})


def _read(params: Params) -> _Given:
    """Read the parameters of a request. Raises msgspec.ValidationError."""
    return convert(dict(params), _Given)


def _folder(cwd: str | None) -> Path:
    if not cwd or not Path(cwd).is_absolute():
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {cwd!r}")
    return Path(cwd).resolve()


def _find(id_: SessionId) -> Path:
    """Return the folder of a session, given its full id, not a title or the beginning of an id. Raises RpcError."""
    with suppress(NoSuchSession):
        found, folder = SessionStore().find(id_)
        if found == id_:
            return folder
    raise RpcError(NOT_FOUND, f"there is no session {id_!r}; session/list lists them")


def _list_sessions(given: _Given) -> Json:
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
    """Choose a model if none is set. Raises RpcError if there is no model at all."""
    if options.model:
        return options
    try:
        choice = await choose_model()
    except ConfigError as error:
        raise RpcError(AUTH_REQUIRED, str(error)) from error
    return replace(options, model=choice.name, notices=(*options.notices, choice.why))


async def _list_models() -> _Models:
    """List the models available here, each with a short description. No provider is asked."""
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
    """Remove a session, unless something was said in it, here or elsewhere."""
    store = SessionStore()
    with suppress(SessionBusy, OSError):
        if store.folder_of(id_).is_dir() and not store.summary_of(id_).title:
            store.remove(id_)


async def serve_editor(
    reads: BinaryIO, writes: BinaryIO, first: tuple[bytes, Params], flags: Flags, mounted: Flags
) -> None:
    """Serve until the editor closes its stream or a signal arrives.

    `first` is the result of `answer_initialize`; for `flags` and `mounted` see EditorAgent.
    """
    serving = anyio.CancelScope()
    line, initialized = first
    connection = Connection(reads, writes, line)
    async with anyio.create_task_group() as tasks:
        agent = EditorAgent(connection, tasks, flags, mounted, has_forms=has_forms(initialized))
        tasks.start_soon(_cancel_on_signal, serving)
        with serving:
            await connection.serve()
        await agent.end()
        tasks.cancel_scope.cancel()
    if serving.cancelled_caught:
        # A thread waits for the editor's next line and cannot be woken.
        os._exit(0)


async def _cancel_on_signal(serving: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(*stop_signals()) as signals:
        await anext(signals)
        serving.cancel()
