"""Gives Pinfold's MCP clients a separate connection to a server, over which they use the protocol themselves.

Messages pass through unchanged, the server's requests too; nothing but `ping` is answered here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast

import anyio
import mcp_types as types
from mcp.shared.dispatcher import CallOptions, DispatchContext, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from pinfold.events import Json
from pinfold.tools.mcp.connection import EXTRAS, all_pages, explain, open_streams, unwrap
from pinfold.tools.mcp.manifest import Manifest, read_tools
from pinfold.tools.mcp.ports import Limits, McpPorts, Patience, Pins
from pinfold.tools.mcp.spec import ServerSpec
from pinfold.tools.mcp.transports import ConnectionEnd, Watch
from pinfold.tools.results import BadCall

Wire: TypeAlias = Mapping[str, Any]
Message: TypeAlias = dict[str, Any]
LATEST = HANDSHAKE_PROTOCOL_VERSIONS[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """The client, the protocol version it speaks, and its capabilities."""

    version: str
    client: Wire
    capabilities: Wire

    @property
    def is_modern(self) -> bool:
        return self.version in MODERN_PROTOCOL_VERSIONS


class Peer(Protocol):
    """The client on the other end of a line."""

    async def on_request(self, method: str, params: Wire | None) -> Message:
        """Answer a request of the server. Raises MCPError."""
        ...

    async def on_notification(self, method: str, params: Wire | None) -> None: ...

    async def on_resumed(self) -> None:
        """Called when the server ended the stream of a request and the stream is being resumed."""
        ...


@dataclass(eq=False, kw_only=True)
class Line:
    spec: ServerSpec
    dispatcher: JSONRPCDispatcher[TransportContext]
    over: ConnectionEnd
    speech: ClientHello
    pins: Pins
    limits: Limits
    version: str = field(init=False)
    """Protocol version; the server may choose an older one than requested."""
    capabilities: Wire = field(default_factory=Message)
    manifest: Manifest = field(default_factory=Manifest)
    listed: Sequence[Wire] = ()
    """The tools as the server lists them."""
    agreed: frozenset[str] = frozenset()
    """Names of tools that are unchanged since the user agreed; for a new server, all that can be offered."""
    has_changed: bool = False
    """True if the server reported a change since its tools were listed."""
    _mirrored: Mapping[str, Mapping[tuple[str, ...], str]] = field(default_factory=Message)
    """Arguments of tools that are also sent as headers."""

    def __post_init__(self) -> None:
        self.version = self.speech.version

    async def request(
        self,
        method: str,
        params: Wire | None = None,
        *,
        on_progress: ProgressFnT | None = None,
        id_: str | int | None = None,
    ) -> Message:
        """Send a request and return its result. Raises MCPError. Cancellation is reported to the server."""
        options: CallOptions = {"headers": self._headers_of(method, params)}
        if on_progress is not None:
            options["on_progress"] = on_progress
        if id_ is not None:
            options["request_id"] = id_
        return await self.dispatcher.send_raw_request(method, params, options)

    async def notify(self, method: str, params: Wire | None = None) -> None:
        await self.dispatcher.notify(method, params, {"headers": {MCP_PROTOCOL_VERSION_HEADER: self.version}})

    def _headers_of(self, method: str, params: Wire | None) -> dict[str, str]:
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if not self.speech.is_modern:
            return headers
        headers[MCP_METHOD_HEADER] = method
        given: Wire = params or {}
        named = NAME_BEARING_METHODS.get(method)
        name = given.get(named) if named else None
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and name in self._mirrored:
                headers |= mcp_param_headers(self._mirrored[name], given.get("arguments") or {})
        return headers

    async def begin(self) -> None:
        """Initialize the protocol session. Raises MCPError, BadCall."""
        if self.speech.is_modern:
            answer = await self.request("server/discover", {"_meta": self.envelope()})
        else:
            said = self.speech
            hello = {"protocolVersion": said.version, "capabilities": said.capabilities, "clientInfo": said.client}
            answer = await self.dispatcher.send_raw_request("initialize", hello, {"cancel_on_abandon": False})
            self.version = str(answer.get("protocolVersion"))
            await self.notify("notifications/initialized")
        self.capabilities = cast("Wire", answer.get("capabilities") or {})

    def envelope(self) -> Message:
        return {
            types.PROTOCOL_VERSION_META_KEY: self.speech.version,
            types.CLIENT_INFO_META_KEY: self.speech.client,
            types.CLIENT_CAPABILITIES_META_KEY: self.speech.capabilities,
        }

    async def read_listing(self) -> None:
        """Read the server's listing. Raises MCPError, BadCall."""
        self.has_changed = False
        self.listed = await self.every("tools/list", "tools") if "tools" in self.capabilities else ()
        there = [(name, kind) for kind, names in EXTRAS.items() if kind in self.capabilities for name in names]
        self.manifest = read_tools(cast("Sequence[Mapping[str, Json]]", self.listed), there)
        self._mirrored = {str(one.get("name")): x_mcp_header_map(one.get("inputSchema")) for one in self.listed}
        good = self.manifest.offerable()
        kept = self.pins.get(self.spec.name)
        if kept is None:
            self.pins.put(self.spec.name, good.to_json())
        pinned = (good if kept is None else Manifest.from_json(kept)).entries
        self.agreed = frozenset(
            name for name, entry in good.entries.items() if name in pinned and pinned[name].digest == entry.digest
        )

    def copy_listing(self, other: Line) -> None:
        """Copy the listing of another line to the same server, which was read a moment ago."""
        self.capabilities, self.manifest, self.listed = other.capabilities, other.manifest, other.listed
        self.agreed, self._mirrored = other.agreed, other._mirrored

    async def every(self, method: str, key: str) -> list[Wire]:
        """Return all pages of a list. Raises MCPError, BadCall."""

        async def page(cursor: str | None) -> tuple[Sequence[Wire], str | None]:
            params: Message = {"_meta": self.envelope()} if self.speech.is_modern else {}
            found = await self.request(method, {**params, "cursor": cursor} if cursor else params)
            more: Any = found.get(key)
            return cast("list[Wire]", more) if isinstance(more, list) else [], found.get("nextCursor")

        try:
            return await all_pages(page, self.limits)
        except BadCall as error:
            raise BadCall(f"{self.spec.name}: {error}") from None


@asynccontextmanager
async def line_to(
    spec: ServerSpec, world: McpPorts, limits: Limits, speech: ClientHello, peer: Peer, *, like: Line | None = None
) -> AsyncGenerator[Line]:
    """Open a line and read its listing, or copy it from the line `like`.

    Raises BadCall, and MCPError if the server refuses this version of the protocol.
    """
    over, patience = ConnectionEnd(), Patience()
    watch = Watch(over, limits)
    watch.on_resume = peer.on_resumed

    async def on_request(_: DispatchContext[TransportContext], method: str, params: Wire | None) -> Message:
        return {} if method == "ping" else await peer.on_request(method, params)

    async def on_notification(_: DispatchContext[TransportContext], method: str, params: Wire | None) -> None:
        if line and method.endswith("/list_changed"):
            line.has_changed = True
        await peer.on_notification(method, params)

    line: Line | None = None
    begun = False
    try:
        async with AsyncExitStack() as stack:
            opening = await open_streams(stack, spec, world, watch, patience)
            streams = await stack.enter_async_context(opening)
            dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(*streams)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            await tasks.start(dispatcher.run, on_request, on_notification)
            line = Line(spec=spec, dispatcher=dispatcher, over=over, speech=speech, pins=world.pins, limits=limits)
            if like is not None:
                line.copy_listing(like)
            else:
                with anyio.fail_after(max(limits.start_s, spec.timeout_s)):
                    await line.begin()
                    await line.read_listing()
            begun = True
            yield line
    except BaseException as error:
        only = unwrap(error)
        if begun or not isinstance(only, Exception) or isinstance(only, MCPError):
            raise only from None
        raise BadCall(f"{spec.name} did not start: {explain(only, over)}") from error
    finally:
        over.end("it was closed")
