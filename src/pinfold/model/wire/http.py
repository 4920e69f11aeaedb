"""HTTP requests to a model's server: one connection pool per model, every wait bounded, every error one line."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
from msgspec import Struct

from pinfold.events import BadEvent, Json, NotPlain, RequestFailed, plain_json
from pinfold.model.names import is_loopback
from pinfold.model.wire.failures import one_line, refusal, request_id_of
from pinfold.model.wire.payload import parse_payload, sendable

if TYPE_CHECKING:
    import httpx2

LINE_BYTES = 16 * 2**20
REPLY_BYTES = 64 * 2**20
_ERROR_BYTES = 64 * 2**10
_ERROR_S = 10.0
_KEEP_ALIVE_S = 60.0
_LINE_END = rb"\r\n|\r|\n"
_MOVES = 3
_NO_SUCH_HOST = ("Name or service not known", "name resolution", "nodename nor servname", "No address associated")
"""Parts of the system's messages for a host name that cannot be resolved."""


class Patience(Struct, frozen=True, kw_only=True):
    """How long to wait for a server."""

    connect_s: float = 10.0
    first_s: float = 120.0
    """Until the first byte of an answer. A local model that reads a long prompt may need ten minutes."""
    idle_s: float = 60.0
    """Between two chunks of the answer."""


class Answer:
    """A response whose body is not read yet."""

    def __init__(self, response: httpx2.Response, url: str, patience: Patience, first_by: float) -> None:
        self.url = url
        self.kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.request_id = request_id_of(response.headers, {})
        self.lost = 0
        """Number of events in it that could not be parsed."""
        self._response = response
        self._patience = patience
        self._first_by = first_by

    async def lines(self) -> AsyncGenerator[list[bytes]]:
        """Yield the lines of the body without line ends, as many at a time as have arrived."""
        rest = bytearray()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                rest += chunk
                if b"\n" in chunk or b"\r" in chunk:
                    text = bytes(rest)
                    # The next chunk may begin with the line feed of this last carriage return.
                    held = b"\r" if text.endswith(b"\r") else b""
                    *lines, last = re.split(_LINE_END, text.removesuffix(held))
                    rest = bytearray(last + held)
                    yield lines
                if len(rest) > LINE_BYTES:
                    raise RequestFailed(f"the server sent a line of over {LINE_BYTES // 2**20} MB")
        if rest:
            yield [bytes(rest.removesuffix(b"\r"))]

    async def whole(self, limit: int = REPLY_BYTES) -> bytes:
        """Return the body, cut at `limit` bytes."""
        body = bytearray()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= limit:
                    break
        return bytes(body[:limit])

    async def _chunks(self) -> AsyncGenerator[bytes]:
        import httpx2

        size = 0
        wait_s = max(0.0, self._first_by - anyio.current_time())
        async with aclosing(self._response.aiter_bytes()) as source:
            while True:
                try:
                    with anyio.fail_after(wait_s):
                        chunk = await anext(source, None)
                except TimeoutError as error:
                    if not size:
                        raise _no_first_byte(self.url, self._patience) from error
                    words = f"the reply stopped: nothing came for {self._patience.idle_s:g} s"
                    raise RequestFailed(words) from error
                except httpx2.HTTPError as error:
                    raise RequestFailed("the reply broke off", request_id=self.request_id) from error
                if chunk is None:
                    return
                size += len(chunk)
                if size > REPLY_BYTES:
                    raise RequestFailed(f"the server sent a reply of over {REPLY_BYTES // 2**20} MB")
                # A compressed answer can expand to many chunks: let other tasks run in between.
                await anyio.lowlevel.checkpoint()
                yield chunk
                wait_s = self._patience.idle_s


class Wire:
    """HTTP client for one server. The first request loads the library and creates the connection pool."""

    def __init__(self, base_url: str, *, patience: Patience, key: str | None = None, hint: str = "") -> None:
        """`hint` is advice for the error message when nothing answers."""
        self.base_url = base_url
        self.patience = patience
        self._key = (key or "").strip()
        self.secrets = (self._key,)
        self._client: httpx2.AsyncClient | None = None
        try:
            parts = urlsplit(base_url)
            # Without a password in the URL, since this appears in messages.
            self._origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
            is_here = is_loopback(parts.hostname or "")
        except ValueError:
            self._origin, is_here = "", False
        usual = "is the server running?" if is_here else "is the network up, and is the server running?"
        self._hint = hint or usual

    def post(self, path: str, body: Json) -> AbstractAsyncContextManager[Answer]:
        """Open a streamed answer; leaving early closes the connection. Raises RequestFailed, also for a bad status."""
        return self._open_answer("POST", path, _encode_body(body), self.patience.first_s)

    async def ask(self, path: str, body: Json = None, *, limit_s: float) -> Json:
        """POST `body`, or GET without one; return the whole answer as JSON. Raises RequestFailed."""
        content = None if body is None else _encode_body(body)
        try:
            with anyio.fail_after(limit_s):
                async with self._open_answer("GET" if content is None else "POST", path, content, limit_s) as answer:
                    return parse_payload((await answer.whole()).decode("utf-8", "replace"))
        except TimeoutError as error:
            raise RequestFailed(f"no answer from {self._place(path)} within {limit_s:g} s") from error
        except BadEvent as error:
            raise RequestFailed(f"{self._place(path)} did not answer with JSON") from error

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def _open_answer(
        self, method: str, path: str, content: bytes | None, first_s: float
    ) -> AsyncGenerator[Answer]:
        import httpx2

        first_by = anyio.current_time() + first_s
        try:
            with anyio.fail_after(first_s):
                response = await send(self._get_client(), method, self._url(path), content)
        except TimeoutError as error:
            raise _no_first_byte(self._place(path), self.patience) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from error
        async with aclosing(response):
            answer = Answer(response, self._place(path), self.patience, first_by)
            if not response.is_success:
                raise await self._read_refusal(response, answer)
            yield answer

    async def _read_refusal(self, response: httpx2.Response, answer: Answer) -> RequestFailed:
        body = b""
        # If the body does not arrive in time, the status alone must do.
        with anyio.move_on_after(_ERROR_S), suppress(RequestFailed):
            body = await answer.whole(_ERROR_BYTES)
        return refusal(response.status_code, body, headers=response.headers, url=answer.url, secrets=self.secrets)

    def _get_client(self) -> httpx2.AsyncClient:
        if self._client is not None:
            return self._client
        import ssl

        import httpx2

        headers = {
            "accept": "text/event-stream, application/x-ndjson, application/json",
            # Compressing small streamed pieces gains nothing and may delay them.
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "pinfold",
            **({"authorization": f"Bearer {self._key}"} if self._key else {}),
        }
        if not (self._key.isascii() and self._key.isprintable()):
            raise RequestFailed("the key has characters that a header cannot hold", retryable=False)
        url = httpx2.URL(self.base_url)
        connect_s, write_s = self.patience.connect_s, self.patience.idle_s
        try:
            self._client = httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(None, connect=connect_s, write=write_s, pool=connect_s),
                limits=httpx2.Limits(keepalive_expiry=_KEEP_ALIVE_S),
                # Reading the system's certificates takes 0.05 s; without TLS an empty store is enough.
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.scheme == "http" else True,
                # Never use a proxy for a server on this machine.
                trust_env=not is_loopback(url.host),
            )
        except (ValueError, ImportError, OSError) as error:
            words = f"the environment's proxy or certificates cannot be used: {one_line(str(error))}"
            raise RequestFailed(words, retryable=False) from error
        return self._client

    def _url(self, path: str) -> str:
        base, mark, query = self.base_url.partition("?")
        return f"{base.rstrip('/')}/{path}{mark}{query}"

    def _place(self, path: str = "") -> str:
        if not self._origin:
            return "the server"
        return f"{self._origin}/{path}" if path else self._origin

    def _unreachable(self, error: Exception) -> RequestFailed:
        import httpx2

        words = one_line(str(error), self.secrets)
        place = self._place()
        match error:
            case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
                return RequestFailed(f"{place!r} is not the URL of a server: {words}", retryable=False)
            case httpx2.LocalProtocolError():
                return RequestFailed(f"the request cannot be sent: {words}", retryable=False)
            case httpx2.ConnectTimeout():
                waited = f"within {self.patience.connect_s:g} s"
                return RequestFailed(f"{place} did not accept the connection {waited}; {self._hint}")
            case httpx2.ConnectError() if "certificate" in words.lower():
                return RequestFailed(f"the certificate of {place} is not trusted: {words}", retryable=False)
            case httpx2.ConnectError() if "ssl" in words.lower() or not words:
                return RequestFailed(f"{place} does not speak TLS; should the URL begin with http:?")
            case httpx2.ConnectError() if any(known in words for known in _NO_SUCH_HOST):
                said = "Host name not found. Check your network and the address."
                return RequestFailed(f"nothing answers at {place}: {said}")
            case httpx2.ConnectError():
                return RequestFailed(f"nothing answers at {place}; {self._hint}")
            case _:
                return RequestFailed(f"{place} did not answer: {words or type(error).__name__}")


async def send(client: httpx2.AsyncClient, method: str, url: str, content: bytes | None) -> httpx2.Response:
    """Send a request; the body is not read yet. Retries if the server had just closed the pooled connection used."""
    import httpx2

    moves = 0
    while True:
        is_new = False

        async def trace(step: str, _: object) -> None:
            nonlocal is_new
            is_new = is_new or step.startswith("connection.connect")

        request = client.build_request(method, url, content=content, extensions={"trace": trace})
        try:
            response = await client.send(request, stream=True)
            moved = response.next_request if response.status_code in (307, 308) else None
            if moved is None or not is_same_server(request.url, moved.url) or moves == _MOVES:
                return response
            await response.aclose()
            url, moves = str(moved.url), moves + 1
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            if is_new:
                raise


def is_same_server(url: httpx2.URL, moved: httpx2.URL) -> bool:
    """True if the key may be sent there too: the same origin, or the same host by https, each at its usual port."""
    is_same = (moved.scheme, moved.port) == (url.scheme, url.port)
    is_upgrade = (url.scheme, url.port, moved.scheme, moved.port) == ("http", None, "https", None)
    return moved.host == url.host and (is_same or is_upgrade)


def _no_first_byte(url: str, patience: Patience) -> RequestFailed:
    return RequestFailed(f"no answer from {url} within {patience.first_s:g} s")


def _encode_body(body: Json) -> bytes:
    try:
        return plain_json(sendable(body)).encode()
    except (NotPlain, RecursionError) as error:
        raise RequestFailed(f"the request cannot be written as JSON: {error}", retryable=False) from error
