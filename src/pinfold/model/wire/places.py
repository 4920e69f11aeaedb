"""Where a model's server is, read from its URL, and which proxy of the environment leads there."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import SplitResult, quote, unquote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    import httpcore2

Scheme: TypeAlias = Literal["http", "https"]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_KEPT = "".join(map(chr, range(0x21, 0x7F)))
"""Of a path; a user may write spaces and other alphabets too."""
_PROXIES = ("http", "https", "socks5", "socks5h")


class BadUrl(ValueError):
    """Says why, without anything that is in it: some of that may be secret."""


class Place(Struct, frozen=True, kw_only=True):
    scheme: Scheme
    host: str
    """In ASCII, without brackets."""
    port: int | None
    path: str
    """Without a last slash."""
    query: str
    authorization: str = ""
    """What the URL's user and password become."""

    def __repr__(self) -> str:
        return f"Place({self.scheme}, {self.host_header!r})"

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def target(self, path: str) -> str:
        """What is asked for there."""
        return f"{self.path}/{path}?{self.query}" if self.query else f"{self.path}/{path}"

    def proxy(self) -> httpcore2.Proxy | None:
        """Never for a server on this machine. Raises ValueError and ImportError for one that cannot be used."""
        url = None if self.host in _LOOPBACK else _proxy_for(self)
        if url is None:
            return None
        import httpcore2

        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in _PROXIES:
            raise ValueError(f"a proxy's address begins with {', '.join(_PROXIES)}, not with {parts.scheme}")
        if parts.scheme.startswith("socks"):
            import socksio  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport] - it is used later
        whole = httpcore2.URL(scheme=parts.scheme, host=_ascii(parts), port=parts.port, target="/")
        known = parts.username is not None
        return httpcore2.Proxy(whole, auth=_user(parts) if known else None)


def read_place(url: str) -> Place:
    """Raises BadUrl."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, _ascii(parts)
    except ValueError:
        raise BadUrl("its host or its port cannot be read") from None
    if parts.scheme not in ("http", "https"):
        raise BadUrl("it begins with neither http:// nor https://")
    if not host or " " in host or not host.isprintable():
        raise BadUrl("it names no host")
    basic = b64encode(b":".join(_user(parts))).decode() if parts.username is not None else ""
    return Place(
        scheme=parts.scheme,
        host=host,
        port=port,
        path=quote(parts.path, safe=_KEPT).rstrip("/"),
        query=quote(parts.query, safe=_KEPT),
        authorization=basic and f"Basic {basic}",
    )


def _ascii(parts: SplitResult) -> str:
    """Raises ValueError."""
    host = parts.hostname or ""
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _user(parts: SplitResult) -> tuple[bytes, bytes]:
    return unquote(parts.username or "").encode(), unquote(parts.password or "").encode()


def _proxy_for(place: Place) -> str | None:
    """As other programs read the environment, and on macOS the system's settings too."""
    if sys.platform != "darwin" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies: Mapping[str, str] = getproxies()
    url = proxies.get(place.scheme) or proxies.get("all")
    if not url or proxy_bypass(place.host_header) or _in_networks(place.host, proxies.get("no", "")):
        return None
    return url


def _in_networks(host: str, listed: str) -> bool:
    """Whether NO_PROXY names a network, such as 192.168.0.0/16, in which the server is: the library reads names only."""
    from ipaddress import ip_address, ip_network

    try:
        address = ip_address(host)
    except ValueError:
        return False
    for entry in listed.split(","):
        try:
            if "/" in entry and address in ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
