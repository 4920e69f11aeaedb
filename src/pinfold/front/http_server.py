"""Shared by the two HTTP servers: where they listen, uvicorn without its signal handling, and reading headers."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Generator
from contextlib import contextmanager

import anyio
import uvicorn
from msgspec import Struct
from starlette.datastructures import Headers

from pinfold.front.signals import stop_signals

_TICK_S = 1.0


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling, which would end the process before sessions are closed."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = anyio.Event()

    async def stop_on_signal(self) -> None:
        with anyio.open_signal_receiver(*stop_signals()) as signals:
            async for _ in signals:
                self.should_exit = True
                self._stopping.set()

    async def main_loop(self) -> None:
        """Keep the `Date` header current until a signal arrives. uvicorn's own loop wakes ten times a second."""
        while not await self.on_tick(0):
            with anyio.move_on_after(_TICK_S):
                await self._stopping.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class Address(Struct, frozen=True, kw_only=True):
    """Where a server listens, and under which names."""

    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    """Further valid values of the `Host` header, each NAME or NAME:PORT."""
    origins: tuple[str, ...] = ()
    """Origins of other web pages that may send requests."""

    def hosts(self, port: int) -> set[str]:
        """Return every valid value of the `Host` header."""
        ours = {"localhost", "127.0.0.1", "::1", self.host} - {"0.0.0.0", "::"}  # noqa: S104 - wildcards, not host names
        named = {name if has_port(name) else f"{name}:{port}" for name in self.names}
        whole = {f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in ours} | named
        return whole | {one.removesuffix(":80") for one in whole if one.endswith(":80")}

    def url(self, port: int) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"

    def bind(self) -> socket.socket:
        """Return a bound socket. Raises OSError."""
        listener = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
        except OSError:
            listener.close()
            raise
        return listener


def has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdecimal() and not name.endswith("]")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_source(headers: Headers, hosts: Collection[str], origins: Collection[str]) -> tuple[int, str] | None:
    """Return status and words of the refusal if the host or the origin is not among those given, in lower case."""
    given = headers.getlist("origin")
    if only_value(headers, "host").lower() not in hosts:
        return 421, "unknown host name"
    if given and (len(given) > 1 or given[0].lower() not in origins):
        return 403, "requests from other sites are not allowed"
    return None


def bearer_token(headers: Headers) -> str | None:
    scheme, space, token = only_value(headers, "authorization").partition(" ")
    return token if space and scheme.lower() == "bearer" else None


def content_type(headers: Headers) -> str:
    """Return the content type in lower case, without its parameters."""
    return only_value(headers, "content-type").partition(";")[0].strip().lower()


def only_value(headers: Headers, name: str) -> str:
    """Return the header's value; empty if it is missing or given twice."""
    values = headers.getlist(name)
    return values[0] if len(values) == 1 else ""
