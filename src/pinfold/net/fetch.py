"""Fetches one URL. Each redirect is parsed, checked and pinned anew. No cookies; no proxy from the environment."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import quote

import anyio
from msgspec import Struct
from msgspec.structs import replace

from pinfold.net.egress import Egress
from pinfold.net.hosts import Address, BadDestination, Destination, Refused, Unreachable, Url, parse_url

if TYPE_CHECKING:
    import ssl

    import httpcore2

_Trace: TypeAlias = Callable[[str, object], Awaitable[None]]
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_KEPT_IN_URL = "".join(map(chr, range(0x21, 0x7F)))
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t -~]*")
_USUAL = (("User-Agent", "pinfold"), ("Accept", "*/*"), ("Accept-Encoding", "gzip, deflate"))
_NOT_GIVEN = frozenset(("host", "connection", "content-length", "transfer-encoding", "accept-encoding"))


class FetchLimits(Struct, frozen=True, kw_only=True):
    redirects: int = 5
    body_bytes: int = 10_000_000
    """The most bytes of a decoded body; the rest is not read."""
    whole_s: float = 60.0
    """Time for all hops together, without the time the gate takes."""
    idle_s: float = 20.0
    """Time between two pieces of an answer."""


class Fetched(Struct, frozen=True, kw_only=True):
    url: str
    """The final URL, after redirects."""
    status: int
    mime: str
    """The content type as the server gave it, parameters included; empty if it did not."""
    body: bytes
    is_whole: bool
    """False if the body was longer than the limit."""
    hops: tuple[str, ...] = ()
    """The URLs requested, in order; `url` is the last."""


async def fetch(
    url: str,
    *,
    egress: Egress,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    limits: FetchLimits | None = None,
    tls: ssl.SSLContext | None = None,
) -> Fetched:
    """Fetch a URL. `headers` and `body` go only to its scheme, host and port, not to others that it redirects to.

    Redirects of a GET or HEAD are followed; those of any other method are returned.
    Raises BadDestination, Refused and Unreachable; an answer with an error status is returned.
    """
    first = read_url(url)
    given = dict(headers or {})
    _check(given)
    bounds = limits or FetchLimits()
    fetcher = _Fetcher(egress=egress, limits=bounds, tls=tls, method=method, body=body, left_s=bounds.whole_s)
    here, hops = first, list[str]()
    for _ in range(bounds.redirects + 1):
        hops.append(str(here))
        if (here.scheme, here.destination) != (first.scheme, first.destination):
            given = {}  # a redirect back does not restore them
        addresses = await egress.resolve_allowed(here.destination, "request")
        got = await fetcher.request(here, given, addresses)
        if isinstance(got, Url):
            here = got
            continue
        return replace(got, hops=tuple(hops))
    raise Refused(f"{first} redirects more than {bounds.redirects} times")


@cache
def _usual_tls() -> ssl.SSLContext:
    """Make the default TLS context, once: that is slow."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


def read_url(url: str) -> Url:
    """Parse a URL typed by a person: path and query, but not the host, may hold spaces and letters beyond ASCII."""
    scheme, separator, rest = url.strip().partition("://")
    authority = re.match(r"[^/?#]*", rest)
    host = authority[0] if authority else ""
    return parse_url(scheme + separator + host + quote(rest[len(host) :], safe=_KEPT_IN_URL))


def _check(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise BadDestination(f"the header {name!r} cannot be sent: it holds a character that headers cannot hold")
        if name.lower() in _NOT_GIVEN:
            raise BadDestination(f"the header {name!r} cannot be set by the caller")


@dataclass(kw_only=True)
class _Fetcher:
    egress: Egress
    limits: FetchLimits
    tls: ssl.SSLContext | None
    method: str
    body: bytes | None
    left_s: float

    async def request(self, url: Url, headers: Mapping[str, str], addresses: tuple[Address, ...]) -> Url | Fetched:
        """Request a URL; return where it redirects to, or the answer. Raises BadDestination and Unreachable."""
        import httpcore2
        import httpx2

        if url.scheme == "https":
            self.tls = self.tls or _usual_tls()
        backend = _pinned_backend(url.destination, self.egress, addresses)
        began, is_sent = anyio.current_time(), False

        async def trace(step: str, _: object) -> None:
            nonlocal is_sent
            is_sent = is_sent or step.startswith("http11.send_request")

        try:
            with anyio.fail_after(max(0.0, self.left_s)):
                async with httpcore2.AsyncConnectionPool(
                    ssl_context=self.tls, network_backend=backend, http2=False, max_connections=1
                ) as pool:
                    return await self._send_request(pool, url, headers, trace)
        except TimeoutError:
            words = f"{url} was not fetched within {self.limits.whole_s:g} s"
            raise Unreachable(words, may_have_arrived=is_sent) from None
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            words = f"{url} was not fetched: {str(error) or type(error).__name__}"
            raise Unreachable(words, may_have_arrived=is_sent) from None
        except httpx2.DecodingError as error:
            words = f"{url} came in an encoding that could not be read: {error}"
            raise Unreachable(words, may_have_arrived=is_sent) from None
        finally:
            self.left_s -= anyio.current_time() - began

    async def _send_request(
        self, pool: httpcore2.AsyncConnectionPool, url: Url, headers: Mapping[str, str], trace: _Trace
    ) -> Url | Fetched:
        import httpcore2

        place = url.destination
        whole = httpcore2.URL(scheme=url.scheme, host=place.host, port=place.port, target=url.target)
        known = {name.lower() for name in headers}
        ours = [(name, value) for name, value in _USUAL if name.lower() not in known]
        said = [("Host", url.host_header), *ours, *headers.items()]
        patience = dict.fromkeys(("connect", "read", "write", "pool"), self.limits.idle_s)
        if self.body is not None:
            said.append(("Content-Length", str(len(self.body))))
        extensions = {"timeout": patience, "trace": trace}
        async with pool.stream(self.method, whole, headers=said, content=self.body, extensions=extensions) as answer:
            pairs = ((key.decode("latin-1").lower(), value.decode("latin-1").strip()) for key, value in answer.headers)
            named = dict(reversed([*pairs]))  # the first of each name counts
            follows = self.method in ("GET", "HEAD") and self.body is None
            if follows and answer.status in _REDIRECTS and "location" in named:
                return url.join(named["location"])
            body = await _decode_body(answer, self.limits.body_bytes)
        return Fetched(
            url=str(url),
            status=answer.status,
            mime=named.get("content-type", ""),
            body=body[: self.limits.body_bytes],
            is_whole=len(body) <= self.limits.body_bytes,
        )


async def _decode_body(answer: httpcore2.Response, limit: int) -> bytes:
    import httpx2

    reader = httpx2.Response(answer.status, headers=answer.headers, content=answer.aiter_stream())
    body = bytearray()
    async for piece in reader.aiter_bytes(1 << 16):
        body += piece
        if len(body) > limit:
            break
    return bytes(body[: limit + 1])


def _pinned_backend(
    destination: Destination, egress: Egress, addresses: tuple[Address, ...]
) -> httpcore2.AsyncNetworkBackend:
    """Make a backend that connects only to these addresses; the name is used only for TLS."""
    import httpcore2

    plain = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

    class Pinned(httpcore2.AsyncNetworkBackend):
        async def connect_tcp(self, host: str, port: int, *_: object, **__: object) -> httpcore2.AsyncNetworkStream:
            if (host, port) != (destination.host, destination.port):
                raise httpcore2.ConnectError(f"{host}:{port} is not the destination of this connection")

            async def open_one(address: Address, at: int) -> httpcore2.AsyncNetworkStream:
                try:
                    return await plain.connect_tcp(str(address), at)
                except httpcore2.ConnectError as error:
                    raise OSError(str(error)) from error

            return await egress.first_open(destination, addresses, open_one)

        async def connect_unix_socket(self, *_: object, **__: object) -> httpcore2.AsyncNetworkStream:
            raise httpcore2.ConnectError("nothing is fetched from a socket of this machine")

        async def sleep(self, seconds: float) -> None:
            await anyio.sleep(seconds)

    return Pinned()
