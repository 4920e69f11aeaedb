"""Servers that are reached by HTTP: one client each, which sends its credentials nowhere else."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, cast

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from pinfold.net import BadDestination, Url, parse_url
from pinfold.text import presentable_line
from pinfold.tools.mcp.server_config import is_loopback, why_not_led_to
from pinfold.tools.mcp.spec import ServerSpec
from pinfold.tools.mcp.traffic import Streams, Watch, WatchedReading, WatchedWriting
from pinfold.tools.results import BadCall

UNSENT = "pinfold: not sent"
"""Marks an error of our own: the server never got the request."""
UNKNOWN = "pinfold: sent, and not answered"
_CONNECT_S = 30.0
_UNSENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


@asynccontextmanager
async def over_http(spec: ServerSpec, watch: Watch, auth: httpx2.Auth | None) -> AsyncGenerator[Streams]:
    client = HttpClient(spec, watch, auth)
    async with AsyncExitStack() as stack:
        if spec.transport == "sse":
            # This transport makes its client itself, and closes it.
            opening = sse_client(spec.url, httpx_client_factory=cast("Any", partial(_return, client)))
        else:
            await stack.enter_async_context(client)
            opening = streamable_http_client(spec.url, http_client=client, max_sse_event_size=watch.limits.frame_bytes)
        incoming, outgoing = await stack.enter_async_context(opening)
        yield WatchedReading(incoming, watch), WatchedWriting(outgoing, watch)


class HttpClient(httpx2.AsyncClient):
    """Turns the failure of one request into an answer to it: the SDK would end all of them."""

    def __init__(self, spec: ServerSpec, watch: Watch, auth: httpx2.Auth | None) -> None:
        self._home = checked_url(spec)
        self._is_sse = spec.transport == "sse"
        self._watch = watch
        self._opened: list[float] = []
        silent_s = watch.limits.total_s(spec.timeout_s) + _CONNECT_S
        super().__init__(
            # What is not compressed cannot be a bomb.
            headers={**spec.headers, "accept-encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(_CONNECT_S, read=silent_s),
            follow_redirects=False,
            event_hooks={"request": [self._leaving], "response": [self._arriving]},
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        over = self._watch.over
        if over.event.is_set():
            # A user who declined to sign in is not asked again by the same attempt.
            return self._answer(request, over.why, unsent=True, error=httpx2.ConnectError(over.why))
        if request.method == "DELETE":
            # Ending the session is a courtesy; it gets little time.
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
            # The server is unreachable: other requests are lost as well, and the next use starts anew.
            self._watch.over.end(words)
        if request.method != "POST" or self._is_sse:
            raise error
        data = UNSENT if unsent else UNKNOWN
        body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": words, "data": data}}
        return httpx2.Response(502, json=body, request=request)

    def _open_stream(self, request: httpx2.Request) -> None:
        """A stream may stay silent, but may not be reopened all the time."""
        limits, now = self._watch.limits, anyio.current_time()
        self._opened = [at for at in self._opened if now - at < limits.window_s]
        self._opened.append(now)
        if len(self._opened) > limits.streams:
            words = f"it ended {limits.streams} event streams in {limits.window_s:g} s"
            self._watch.over.end(words)
            raise httpx2.RemoteProtocolError(words, request=request)
        timeout: dict[str, Any] = dict(request.extensions.get("timeout", {}))
        request.extensions = {**request.extensions, "timeout": {**timeout, "read": None}}

    async def _leaving(self, request: httpx2.Request) -> None:
        """Refuse requests to this machine or its network, unless the server is there: sign-in goes where the server says."""
        try:
            url = parse_url(str(request.url))
        except BadDestination as error:
            raise httpx2.UnsupportedProtocol(f"the server leads nowhere: {error}", request=request) from None
        if why_not_led_to(url, self._home):
            raise httpx2.UnsupportedProtocol(
                f"the server leads to {url.scheme}://{url.destination}, where nothing is sent", request=request
            )

    async def _arriving(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self._watch.over.status = response.status_code
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.RemoteProtocolError(
                "the server sends compressed what was asked for plain", request=response.request
            )
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Counted(response.stream, self._watch, is_stream=is_stream)


class _Counted(httpx2.AsyncByteStream):
    """A body with a size limit: for the whole, or for each window of a stream."""

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
                    words = f"it sent more than {most:,} bytes" + (
                        f" in {limits.window_s:g} s" if self._is_stream else " as one answer"
                    )
                    self._watch.over.end(words)
                    raise httpx2.StreamError(words)
                yield chunk
        except httpx2.TransportError as error:
            # The SDK treats this error as a broken answer; any other would end the whole connection.
            raise httpx2.StreamError(f"the answer broke off: {_words(error)}") from error

    async def aclose(self) -> None:
        await self._inner.aclose()


def checked_url(spec: ServerSpec) -> Url:
    """Raises BadCall where nothing may be sent."""
    try:
        url = parse_url(spec.url)
    except BadDestination as error:
        raise BadCall(f"its URL cannot be used: {error}") from None
    if url.scheme == "http" and not is_loopback(url) and not spec.allow_http:
        raise BadCall("its URL is plain http to another machine; write https, or add `allow_http`")
    return url


def _return(client: httpx2.AsyncClient, **_: object) -> httpx2.AsyncClient:
    return client


def _words(error: Exception) -> str:
    return presentable_line(str(error) or type(error).__name__)[:400]
