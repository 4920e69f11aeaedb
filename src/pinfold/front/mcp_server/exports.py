"""Exports the user's own MCP servers to clients, behind policy; tools are prefixed with the server's name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, NotificationParams, RequestParams
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict

from pinfold import __version__
from pinfold.app import CommandRefused, ConfigError
from pinfold.app.clients import LATEST, ClientHello, ClientSessions, Line, Upstream
from pinfold.events import Json, PinfoldError
from pinfold.front.mcp_server.calls import Calls, failure
from pinfold.front.mcp_server.clients import Client, ClientPeer, Context, RequestPeer, client_of

Wire: TypeAlias = Mapping[str, Json]
Answer: TypeAlias = dict[str, Json]
_Handler: TypeAlias = Callable[[Context], Awaitable[object]]
TITLE = "mcp exports"
SEPARATOR = "__"
"""Separates a server's name from its tool or prompt."""
_ENVELOPE = "io.modelcontextprotocol/"
_LIST_FIELDS: Wire = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Fields of every combined list."""
_PINFOLD: Wire = {"name": "pinfold", "version": __version__}


class _Params(RequestParams):
    model_config = ConfigDict(extra="allow")


class _NotificationParams(NotificationParams):
    model_config = ConfigDict(extra="allow")


class ExportingServer(Server[Any]):
    """Announces change notifications if the exported servers have them."""

    changes = NotificationOptions()

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Json]] | None = None,
        extensions: dict[str, dict[str, Json]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or self.changes, experimental_capabilities, extensions
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as policy judges it, and the request to forward."""

    server: str
    tool: str
    args: Wire
    params: dict[str, Json]


class Exports:
    """Exports the user's servers `names`, or all for `*`. `plain`: their tools and prompts keep their names."""

    def __init__(self, client_sessions: ClientSessions, calls: Calls, names: tuple[str, ...], *, plain: bool) -> None:
        self._client_sessions = client_sessions
        self._calls = calls
        self._wanted = names
        self._plain = plain
        self._names: tuple[str, ...] = ()
        self._shared: Upstream | None = None
        """Used for all clients that cannot be told apart."""
        self._each: dict[str, tuple[Upstream, ClientPeer]] = {}
        self._modern: dict[str, Line] = {}
        """Connections to servers with the newer protocol."""
        self._seen: dict[str, Line] = {}
        """The latest connection to each server."""

    async def start_servers(self) -> None:
        """Start the servers and read what they offer. Raises PinfoldError."""
        upstream = await self._shared_upstream()
        self._names = upstream.names if self._wanted == ("*",) else self._wanted
        if unknown := [name for name in self._names if name not in upstream.names]:
            there = f"export one of {', '.join(upstream.names)}" if upstream.names else "none is configured"
            raise ConfigError(f"there is no MCP server {unknown[0]!r} to export; {there}")
        if self._plain and len(self._names) != 1:
            raise ConfigError("--plain-names needs exactly one exported server, so that names cannot clash")
        for name in self._names:
            await self._shared_line(upstream, name)

    async def _shared_upstream(self) -> Upstream:
        if self._shared is None or self._shared.session.gone.is_set():
            self._shared = Upstream(await self._client_sessions.open(TITLE, TITLE))
        return self._shared

    async def _shared_line(self, upstream: Upstream, name: str) -> Line:
        """Return a shared connection, with the newer protocol if the server has it."""
        no_client = RequestPeer()
        hello = ClientHello(version=LATEST_MODERN_VERSION, client=_PINFOLD, capabilities={})
        if name in self._modern or name not in self._seen:
            try:
                self._modern[name] = self._seen[name] = await upstream.get_lasting_line(name, hello, no_client)
                return self._seen[name]
            except (MCPError, PinfoldError):
                if name in self._modern:
                    raise
        hello = ClientHello(version=LATEST, client=_PINFOLD, capabilities={})
        try:
            self._seen[name] = await upstream.get_lasting_line(name, hello, no_client)
        except MCPError as error:
            raise ConfigError(f"{name} cannot be exported: {error.error.message}") from error
        return self._seen[name]

    # --- capabilities

    def has(self, capability: str, *inside: str) -> bool:
        found: list[Json] = [line.capabilities.get(capability) for line in self._seen.values()]
        for key in inside:
            found = [cast("Wire", one).get(key) for one in found if isinstance(one, dict)]
        return any(one is not None and one is not False for one in found)

    def schema_of(self, tool: str) -> Wire | None:
        """Return the schema of a tool's arguments, by its public name."""
        known = next((one for one in self._calls.tools if one.name == tool), None)
        if known is not None:
            return known.input_schema
        try:
            server, name = self._split(tool)
        except MCPError:
            return None
        listed = self._seen[server].listed if server in self._seen else ()
        return next((one.get("inputSchema") for one in listed if one.get("name") == name), None)

    def install(self, server: ExportingServer) -> None:
        """Add handlers for what the servers offer."""
        server.get_tool_input_schema = self.schema_of
        handlers: dict[str, _Handler] = {"tools/list": self._list_tools, "tools/call": self._call_tool}
        if self.has("resources"):
            handlers["resources/list"] = self._make_list_handler("resources")
            handlers["resources/templates/list"] = self._make_list_handler("resourceTemplates")
            handlers["resources/read"] = self._read_resource
        if self.has("resources", "subscribe"):
            handlers["resources/subscribe"] = handlers["resources/unsubscribe"] = self._forward_to_first
        if self.has("prompts"):
            handlers["prompts/list"] = self._make_list_handler("prompts")
            handlers["prompts/get"] = self._get_prompt
        if self.has("completions"):
            handlers["completion/complete"] = self._complete
        if self.has("logging"):
            handlers["logging/setLevel"] = self._forward_to_all
        if len(self._modern) == 1 == len(self._names):
            handlers["subscriptions/listen"] = self._listen
        for method, handler in handlers.items():
            server.add_request_handler(method, _Params, _with_protocol_errors(handler))
        server.add_notification_handler("notifications/roots/list_changed", _NotificationParams, self._roots_changed)
        server.changes = NotificationOptions(
            prompts_changed=self.has("prompts", "listChanged"),
            resources_changed=self.has("resources", "listChanged"),
            tools_changed=self.has("tools", "listChanged"),
        )

    # --- lists

    async def _list_tools(self, context: Context) -> Answer:
        found: list[Wire] = [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in self._calls.tools]
        for name in self._names:
            async with self._line(context, name) as (_client, line):
                await line.read_listing()
                found += [
                    {**one, "name": self._public_name(name, str(one.get("name")))}
                    for one in line.listed
                    if one.get("name") in line.agreed
                ]
                self._seen[name] = line
        return {"tools": found, **_LIST_FIELDS}

    def _make_list_handler(self, key: str) -> _Handler:
        async def list_items(context: Context) -> Answer:
            found: list[Wire] = []
            for name in self._names:
                async with self._line(context, name) as (_client, line):
                    if ("prompts" if key == "prompts" else "resources") not in line.capabilities:
                        continue
                    for one in await line.every(context.method, key):
                        renamed = {**one, "name": self._public_name(name, str(one.get("name")))}
                        found.append(renamed if key == "prompts" else one)
            return {key: found, **_LIST_FIELDS}

        return list_items

    # --- requests that policy judges

    async def _call_tool(self, context: Context) -> object:
        params = dict(context.params or {})
        tool = str(params.get("name"))
        if self._calls.has(tool):
            return await self._calls.call(context, tool, dict(_table(params.get("arguments"))))
        server, params["name"] = self._split(tool)
        try:
            async with self._line(context, server) as (client, line):
                if params["name"] not in line.agreed:
                    return failure(f"Unknown tool: {tool[:80]}")
                call = _Call(server, params["name"], _table(params.get("arguments")), params)
                return await self._judge_and_forward(context, client, line, call)
        except PinfoldError as error:
            return failure(str(error))

    async def _read_resource(self, context: Context) -> Answer:
        params = dict(context.params or {})
        refusal: MCPError | None = None
        for server in self._names:
            async with self._line(context, server) as (client, line):
                if "resources" not in line.capabilities:
                    continue
                call = _Call(server, "read_resource", {"uri": params.get("uri")}, params)
                try:
                    return await self._judge_and_forward(context, client, line, call)
                except CommandRefused as error:
                    refusal = MCPError(code=INVALID_REQUEST, message=str(error))
                except MCPError as error:
                    refusal = error  # another server may have it
        raise refusal or MCPError(code=INVALID_PARAMS, message="no server has resources")

    async def _get_prompt(self, context: Context) -> Answer:
        params = dict(context.params or {})
        server, params["name"] = self._split(str(params.get("name")))
        args = {"name": params["name"], "arguments": _table(params.get("arguments"))}
        async with self._line(context, server) as (client, line):
            return await self._judge_and_forward(context, client, line, _Call(server, "get_prompt", args, params))

    async def _judge_and_forward(self, context: Context, client: Client, line: Line, call: _Call) -> Answer:
        upstream = await self._upstream(client)
        forward = partial(self._forward_request, context, line, call.params)
        return await upstream.forward_call(line, call.server, (call.tool, call.args), forward, client.approve)

    # --- requests that policy does not judge

    async def _complete(self, context: Context) -> Answer:
        params = dict(context.params or {})
        match params.get("ref"):
            case {"type": "ref/prompt", "name": str(name), **rest}:
                server, plain = self._split(name)
                params["ref"] = {**rest, "type": "ref/prompt", "name": plain}
                async with self._line(context, server) as (_client, line):
                    return await self._forward_request(context, line, params)
            case _:
                return await self._forward_to_first(context)

    async def _forward_to_first(self, context: Context) -> Answer:
        """Return the answer of the first server that does not refuse."""
        refusal: MCPError | None = None
        for server in self._names:
            async with self._line(context, server) as (_client, line):
                try:
                    return await self._forward_request(context, line, dict(context.params or {}))
                except MCPError as error:
                    refusal = error
        raise refusal or MCPError(code=INVALID_PARAMS, message="no server is exported")

    async def _forward_to_all(self, context: Context) -> Answer:
        for server in self._names:
            async with self._line(context, server) as (_client, line):
                if "logging" in line.capabilities:
                    await self._forward_request(context, line, dict(context.params or {}))
        return {}

    async def _listen(self, context: Context) -> Answer:
        (server,) = self._names
        async with self._line(context, server) as (_client, line):
            return await line.request(context.method, context.params, id_=context.request_id)

    async def _roots_changed(self, context: Context, _params: BaseModel) -> None:
        for server in self._names:
            async with self._line(context, server) as (_client, line):
                await line.notify(context.method, context.params)

    async def _forward_request(self, context: Context, line: Line, params: dict[str, Json]) -> Answer:
        meta = dict(params.get("_meta") or {})
        wants_progress = meta.pop("progressToken", None) is not None
        if line.version not in MODERN_PROTOCOL_VERSIONS:
            meta = {key: value for key, value in meta.items() if not key.startswith(_ENVELOPE)}
        params = {**params, "_meta": meta} if meta else {k: v for k, v in params.items() if k != "_meta"}
        report = context.session.report_progress if wants_progress else None
        return await line.request(context.method, params, on_progress=report)

    # --- connections to the servers

    @asynccontextmanager
    async def _line(self, context: Context, server: str) -> AsyncGenerator[tuple[Client, Line]]:
        client = client_of(context)
        upstream = await self._upstream(client)
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            peer = self._each[client.key][1]
            with peer.track_request(context):
                yield client, await upstream.get_lasting_line(server, _client_hello(context), peer)
            return
        known = await self._shared_line(await self._shared_upstream(), server)
        if server in self._modern and upstream.is_remote(server):
            hello = _client_hello(context)
            async with upstream.open_request_line(server, hello, RequestPeer(context), known) as line:
                yield client, line
        else:
            yield client, known

    async def _upstream(self, client: Client) -> Upstream:
        """Return the servers in the client's own session, so that policy knows what the client has read."""
        if not client.key:
            return await self._shared_upstream()
        session = await self._calls.session_of(client)
        known = self._each.get(client.key)
        if known is None or known[0].session is not session:
            self._each = {key: one for key, one in self._each.items() if not one[0].session.gone.is_set()}
            self._each[client.key] = known = Upstream(session), ClientPeer()
        return known[0]

    def forget(self, client: str) -> None:
        self._each.pop(client, None)

    # --- names

    def _public_name(self, server: str, name: str) -> str:
        return name if self._plain else f"{server}{SEPARATOR}{name}"

    def _split(self, shown: str) -> tuple[str, str]:
        if self._plain:
            return self._names[0], shown
        for server in self._names:
            if shown.startswith(f"{server}{SEPARATOR}"):
                return server, shown.removeprefix(f"{server}{SEPARATOR}")
        raise MCPError(code=INVALID_PARAMS, message=f"Unknown name: {shown[:80]}")


def _with_protocol_errors(handler: _Handler) -> Callable[[Context, BaseModel], Awaitable[Json]]:
    """Wrap a handler so that a PinfoldError becomes a protocol error."""

    async def handle(context: Context, _: BaseModel) -> Json:
        try:
            return await handler(context)
        except PinfoldError as error:
            raise MCPError(code=INVALID_REQUEST, message=str(error)) from error

    return handle


def _table(value: object) -> Wire:
    return cast("Wire", value) if isinstance(value, dict) else {}


def _client_hello(context: Context) -> ClientHello:
    about, can = context.session.client_params, context.session.client_capabilities
    client = about.client_info.model_dump(by_alias=True, mode="json", exclude_none=True) if about else _PINFOLD
    capabilities = can.model_dump(by_alias=True, mode="json", exclude_none=True) if can else {}
    return ClientHello(version=context.protocol_version, client=client, capabilities=capabilities)
