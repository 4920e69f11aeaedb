"""Transports to a server: standard streams, or HTTP with one client per server, so that credentials go nowhere else.

Messages are counted: a flood ends this connection only.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeAlias, cast

import anyio
import httpx2
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.auth import OAuthFlowError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from pinfold.events import Json
from pinfold.net import BadDestination, Url, parse_url
from pinfold.text import presentable_line
from pinfold.tools.mcp.ports import Limits, Process
from pinfold.tools.mcp.spec import ServerSpec, is_loopback, why_redirect_refused
from pinfold.tools.results import BadCall

Streams: TypeAlias = tuple[Any, Any]
"""The read and write streams of a transport. The SDK has no public type for them."""
Incoming: TypeAlias = SessionMessage | Exception


class ConnectionEnd:
    """The end of one connection, and why."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.why = ""
        self.status = 0
        """The last HTTP error status, which the SDK does not report."""

    def end(self, why: str) -> None:
        """Record the end; only the first reason is kept."""
        if not self.event.is_set():
            self.why = why
            self.event.set()


class Watch:
    def __init__(self, over: ConnectionEnd, limits: Limits) -> None:
        self.over = over
        self.limits = limits
        self.on_resume: Callable[[], Awaitable[None]] | None = None
        """Called when an event stream that the server ended is resumed."""
        self._asked: set[str] = set()
        self._since = -1e9
        self._count = 0
        self._bytes = 0

    def count_sent(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._asked.add(str(message.id))

    def count_received(self, message: types.JSONRPCMessage | Exception | None, size: int = 0) -> bool:
        """Count a message; return False once there are too many. The first answer to each request does not count."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and str(message.id) in self._asked:
            self._asked.discard(str(message.id))
            return True
        now = anyio.current_time()
        if now - self._since > self.limits.window_s:
            self._since, self._count, self._bytes = now, 0, 0
        self._count += 1
        self._bytes += size
        limits = self.limits
        too_many = f"{limits.unasked:,} messages" if self._count > limits.unasked else ""
        if too_many or self._bytes > limits.unasked_bytes:
            most = too_many or f"{limits.unasked_bytes:,} bytes"
            self.over.end(f"it sent more than {most} in {limits.window_s:g} s that were not asked for")
        return not self.over.event.is_set()


class WatchedReading(ObjectReceiveStream[Incoming]):
    """A receiving stream that ends when the watch has counted too many messages."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Incoming:
        try:
            item: Incoming = await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._watch.over.end("the server ended the connection")
            raise
        if not self._watch.count_received(item if isinstance(item, Exception) else item.message):
            raise anyio.EndOfStream
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()


class WatchedWriting(ObjectSendStream[SessionMessage]):
    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    async def send(self, item: SessionMessage) -> None:
        self._watch.count_sent(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()


_LAST_WORDS_S = 1.0
"""Wait for a program to exit after its output has ended, to learn its exit code."""
_QUOTED = 120
_SAID_LINES = 5


@asynccontextmanager
async def over_stdio(process: Process, watch: Watch, notice: Callable[[str], None]) -> AsyncGenerator[Streams]:
    to_us, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, to_it = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks, to_us, incoming, outgoing, to_it:
        tasks.start_soon(_read, process, to_us, watch, notice)
        tasks.start_soon(_write, process, to_it)
        try:
            yield incoming, WatchedWriting(outgoing, watch)
        finally:
            tasks.cancel_scope.cancel()
            # A server whose connection broke gets less time to exit.
            grace_s = _LAST_WORDS_S / 10 if watch.over.event.is_set() else watch.limits.close_s
            with anyio.move_on_after(grace_s, shield=True):
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    await process.stdin.aclose()
                await process.wait_for_exit()


async def _read(
    process: Process, to_us: MemoryObjectSendStream[Incoming], watch: Watch, notice: Callable[[str], None]
) -> None:
    lines = BufferedByteReceiveStream(process.stdout)
    has_noticed = False
    async with to_us:
        while not watch.over.event.is_set():
            try:
                line = await lines.receive_until(b"\n", watch.limits.frame_bytes)
            except anyio.DelimiterNotFound:
                watch.over.end(f"it sent a message of more than {watch.limits.frame_bytes:,} bytes")
                return
            except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                watch.over.end(await _ending(process))
                return
            message = _decode(line)
            if not watch.count_received(message, len(line)):
                return
            if message is not None:
                try:
                    await to_us.send(SessionMessage(message))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
            elif line.strip() and not has_noticed:
                has_noticed = True
                notice(f"its standard output has a line that is not a message: {_quote_line(line)}")


async def _write(process: Process, to_it: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with to_it:
        async for item in to_it:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
            try:
                await process.stdin.send(line.encode())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                # `_read` reports that it ended, and how.
                return


def _decode(line: bytes) -> types.JSONRPCMessage | None:
    """Parse a line; None if it is no message. An unreadable answer becomes an error, so that its request ends."""
    with suppress(ValidationError):
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    try:
        loose: Json = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(loose, dict) or "method" in loose:
        return None
    request = cast("dict[str, Json]", loose).get("id")
    if isinstance(request, bool) or not isinstance(request, int | str):
        return None
    said = f"its answer is not JSON-RPC: {_quote_line(line)}"
    error = types.ErrorData(code=types.PARSE_ERROR, message=said, data=UNKNOWN)
    return types.JSONRPCError(jsonrpc="2.0", id=request, error=error)


async def _ending(process: Process) -> str:
    how = "it closed its standard output"
    with anyio.move_on_after(_LAST_WORDS_S):
        code = await process.wait_for_exit()
        how = "it ended"
        if code is not None:
            how = f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
    lines = [line.strip() for line in process.said.splitlines() if line.strip()]
    said = presentable_line(" / ".join(lines[-_SAID_LINES:]))
    return f"{how}; it said: {said[-600:]}" if said else how


def _quote_line(line: bytes) -> str:
    text = presentable_line(line[:_QUOTED].decode("utf-8", "replace"))
    return f"{text!r}{'...' if len(line) > _QUOTED else ''}"


UNSENT = "pinfold: not sent"
"""Marks an error made here for a request that the server never got."""
UNKNOWN = "pinfold: sent, and not answered"
_CONNECT_S = 30.0
_UNSENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


@asynccontextmanager
async def over_http(spec: ServerSpec, watch: Watch, auth: httpx2.Auth | None) -> AsyncGenerator[Streams]:
    client = HttpClient(spec, watch, auth)
    async with AsyncExitStack() as stack:
        if spec.transport == "sse":
            # This transport creates and closes the client itself.
            def make_client(**_: object) -> httpx2.AsyncClient:
                return client

            opening = sse_client(spec.url, httpx_client_factory=cast("Any", make_client))
        else:
            await stack.enter_async_context(client)
            opening = streamable_http_client(spec.url, http_client=client, max_sse_event_size=watch.limits.frame_bytes)
        incoming, outgoing = await stack.enter_async_context(opening)
        yield WatchedReading(incoming, watch), WatchedWriting(outgoing, watch)


class HttpClient(httpx2.AsyncClient):
    """Turns the failure of a request into an error answer to it; the SDK would end the whole connection."""

    def __init__(self, spec: ServerSpec, watch: Watch, auth: httpx2.Auth | None) -> None:
        self._home = checked_url(spec)
        self._is_sse = spec.transport == "sse"
        self._watch = watch
        self._opened: list[float] = []
        silent_s = watch.limits.total_s(spec.timeout_s) + _CONNECT_S
        super().__init__(
            # Without compression there are no decompression bombs.
            headers={**spec.headers, "accept-encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(_CONNECT_S, read=silent_s),
            follow_redirects=False,
            event_hooks={"request": [self._check_request], "response": [self._check_response]},
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        over = self._watch.over
        if over.event.is_set():
            # Once the user has declined to sign in, this attempt must not ask again.
            return self._answer(request, over.why, unsent=True, error=httpx2.ConnectError(over.why))
        if request.method == "DELETE":
            # Ending the session is optional, so it gets little time.
            limits = dict.fromkeys(("connect", "read", "write", "pool"), self._watch.limits.close_s)
            request.extensions = {**request.extensions, "timeout": limits}
        if request.method == "GET" and request.headers.get("accept") == "text/event-stream":
            self._open_stream(request)
        if self._watch.on_resume and "last-event-id" in request.headers:
            await self._watch.on_resume()
        try:
            response = await super().send(request, **options)
        except httpx2.RequestError as error:
            unsent = isinstance(error, _UNSENT_ERRORS)
            return self._answer(request, f"{self._home.destination}: {_words(error)}", unsent=unsent, error=error)
        except (OAuthFlowError, BadCall) as error:
            return self._answer(request, f"no sign-in: {_words(error)}", unsent=True, error=error)
        if self._is_sse and request.method == "POST" and response.status_code >= 400:
            over.end(f"the server answered HTTP {response.status_code}")
        return response

    def _answer(self, request: httpx2.Request, words: str, *, unsent: bool, error: Exception) -> httpx2.Response:
        if unsent or self._is_sse:
            # The server is unreachable: end the connection, so that the next use opens a new one.
            self._watch.over.end(words)
        if request.method != "POST" or self._is_sse:
            raise error
        data = UNSENT if unsent else UNKNOWN
        body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": words, "data": data}}
        return httpx2.Response(502, json=body, request=request)

    def _open_stream(self, request: httpx2.Request) -> None:
        """Allow a stream to stay silent, but end the connection if streams are reopened too often."""
        limits, now = self._watch.limits, anyio.current_time()
        self._opened = [at for at in self._opened if now - at < limits.window_s]
        self._opened.append(now)
        if len(self._opened) > limits.streams:
            words = f"it ended {limits.streams} event streams in {limits.window_s:g} s"
            self._watch.over.end(words)
            raise httpx2.RemoteProtocolError(words, request=request)
        timeout: dict[str, Any] = dict(request.extensions.get("timeout", {}))
        request.extensions = {**request.extensions, "timeout": {**timeout, "read": None}}

    async def _check_request(self, request: httpx2.Request) -> None:
        """Refuse requests to this machine or network unless the server is there: the server chooses sign-in URLs."""
        try:
            url = parse_url(str(request.url))
        except BadDestination as error:
            words = f"the server redirects to an invalid address: {error}"
            raise httpx2.UnsupportedProtocol(words, request=request) from None
        if why_redirect_refused(url, self._home):
            words = f"the server redirects to {url.scheme}://{url.destination}, which is not allowed"
            raise httpx2.UnsupportedProtocol(words, request=request)

    async def _check_response(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self._watch.over.status = response.status_code
        if response.headers.get("content-encoding", "identity") != "identity":
            words = "the server sent a compressed answer although none was accepted"
            raise httpx2.RemoteProtocolError(words, request=response.request)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Counted(response.stream, self._watch, is_stream=is_stream)


class _Counted(httpx2.AsyncByteStream):
    """A response body with a size limit: in total, or per window for an event stream."""

    def __init__(self, inner: httpx2.AsyncByteStream, watch: Watch, *, is_stream: bool) -> None:
        self._inner = inner
        self._watch = watch
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        limits = self._watch.limits
        most = limits.unasked_bytes if self._is_stream else limits.frame_bytes
        count, since = 0, anyio.current_time()
        try:
            async for chunk in self._inner:
                now = anyio.current_time()
                if self._is_stream and now - since > limits.window_s:
                    count, since = 0, now
                count += len(chunk)
                if count > most:
                    span = f"in {limits.window_s:g} s" if self._is_stream else "as one answer"
                    words = f"it sent more than {most:,} bytes {span}"
                    self._watch.over.end(words)
                    raise httpx2.StreamError(words)
                yield chunk
        except httpx2.TransportError as error:
            # The SDK treats StreamError as a broken answer; any other error would end the whole connection.
            raise httpx2.StreamError(f"the answer broke off: {_words(error)}") from error

    async def aclose(self) -> None:
        await self._inner.aclose()


def checked_url(spec: ServerSpec) -> Url:
    """Return the server's URL. Raises BadCall if nothing may be sent to it."""
    try:
        url = parse_url(spec.url)
    except BadDestination as error:
        raise BadCall(f"its URL cannot be used: {error}") from None
    if url.scheme == "http" and not is_loopback(url) and not spec.allow_http:
        raise BadCall("its URL is plain http to another machine; write https, or add `allow_http`")
    return url


def _words(error: Exception) -> str:
    return presentable_line(str(error) or type(error).__name__)[:400]
