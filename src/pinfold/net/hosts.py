"""Destinations in canonical form, the kinds of special addresses, and the errors of this room.

Text that does not parse is refused. Nothing here resolves, decides or connects.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal, TypeAlias
from urllib.parse import urljoin

from msgspec import Struct

Address: TypeAlias = IPv4Address | IPv6Address
Scheme: TypeAlias = Literal["http", "https"]
DEFAULT_PORTS: dict[Scheme, int] = {"http": 80, "https": 443}
LONGEST_NAME = 253
SHOWN = 80
"""The most characters of an invalid text that a message quotes."""
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?", re.DOTALL)
_PRINTABLE = re.compile(r"[!-~]*")
_CARRIES_IPV4 = {
    IPv6Network("::ffff:0:0/96"): "an IPv4-mapped IPv6 address",
    IPv6Network("::ffff:0:0:0/96"): "a translated IPv4 address",
    IPv6Network("64:ff9b::/96"): "a NAT64 address",
    IPv6Network("64:ff9b:1::/48"): "a NAT64 address",
    IPv6Network("2002::/16"): "a 6to4 address",
    IPv6Network("2001::/32"): "a Teredo address",
}
_COMPATIBLE = IPv6Network("::/96")


class NetError(Exception):
    """Base class. The message is one line that suits a user and an HTTP status line.

    NetError
      BadDestination   the text does not name a valid destination
      BadPattern       a pattern of the allow-list is wrong
      Refused          a rule or a person denied it
      Unreachable      the server or the network failed; it may work later
    """


class BadDestination(NetError):
    """The text names no valid destination; the message says what is wrong."""


class BadPattern(NetError):
    """A line of an allow-list is wrong; the message says what to write instead."""


class Refused(NetError):
    """Not allowed; the reason is shown verbatim."""


class Unreachable(NetError):
    """Allowed, but the connection failed."""

    def __init__(self, message: str, *, may_have_arrived: bool = False) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived
        """True if the request may have reached the server."""


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """A host and port. Raises BadDestination for any form but the canonical one."""

    host: str
    """A name in lower case without a trailing dot, or an address as `ipaddress` writes it, without brackets."""
    port: int

    def __post_init__(self) -> None:
        if not 0 < self.port < 1 << 16:
            raise BadDestination(f"{self.port} is not a port; ports are 1 to 65535")
        if _host(f"[{self.host}]" if ":" in self.host else self.host) != self.host:
            raise BadDestination(f"{_quote_text(self.host)} is not the plain form of a host")

    @property
    def address(self) -> Address | None:
        """The host as an address; None for a name."""
        if ":" in self.host:
            return IPv6Address(self.host)
        return IPv4Address(self.host) if _ends_in_number(self.host) else None

    def __str__(self) -> str:
        return f"{self.written_host}:{self.port}"

    @property
    def written_host(self) -> str:
        """The host as it is written in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host


class Url(Struct, frozen=True):
    scheme: Scheme
    destination: Destination
    target: str
    """Path and query, as they are sent."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.target}"

    @property
    def host_header(self) -> str:
        is_usual = self.destination.port == DEFAULT_PORTS[self.scheme]
        return self.destination.written_host if is_usual else str(self.destination)

    def join(self, location: str) -> Url:
        """Return where a redirect leads. Raises BadDestination."""
        if not _PRINTABLE.fullmatch(location):  # `urljoin` would silently drop some of these
            raise BadDestination(f"the redirect to {_quote_text(location)} holds a character that no URL has")
        try:
            joined = urljoin(str(self), location)
        except ValueError:
            raise BadDestination(f"the redirect to {_quote_text(location)} is not a URL") from None
        return parse_url(joined)


def parse_authority(text: str, *, port: int | None = None) -> Destination:
    """Parse `host:port`; `port` is the default where none is written. Raises BadDestination."""
    host, written = _split(text)
    canonical = _host(host)
    if written is None:
        if port is None:
            raise BadDestination(f"{_quote_text(text)} names no port; write host:port")
        return Destination(canonical, port)
    if not _PORT.fullmatch(written) or int(written) >= 1 << 16:
        raise BadDestination(f"{_quote_text(text)} has no valid port; ports are 1 to 65535, in plain digits")
    return Destination(canonical, int(written))


def parse_url(text: str) -> Url:
    """Parse an absolute http or https URL. Raises BadDestination."""
    if not _PRINTABLE.fullmatch(text):
        raise BadDestination(f"{_quote_text(text)} holds a space, a control character or one outside ASCII")
    found = _URL.fullmatch(text)
    if found is None:
        raise BadDestination(f"{_quote_text(text)} is not an absolute URL; write http://... or https://...")
    scheme = found[1].lower()
    if scheme not in DEFAULT_PORTS:
        raise BadDestination(f"{_quote_text(text)} is not http or https")
    target = found[3] if found[3].startswith("/") else f"/{found[3]}"
    return Url(scheme, parse_authority(found[2], port=DEFAULT_PORTS[scheme]), target)


def _split(text: str) -> tuple[str, str | None]:
    """Return host and port as written."""
    if "@" in text:
        raise BadDestination(f"{_quote_text(text)} holds user information (`@`); leave it out")
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise BadDestination(f"{_quote_text(text)} is not an address in brackets")
        return host + bracket, rest[1:] if rest else None
    host, colon, port = text.partition(":")
    if ":" in port:
        raise BadDestination(f"{_quote_text(text)} has too many colons; an IPv6 address goes in brackets")
    return host, port if colon else None


def _host(text: str) -> str:
    """Return the canonical form of a host."""
    if not text:
        raise BadDestination("there is no host")
    if not text.isascii():
        raise BadDestination(f"{_quote_text(text)} is not ASCII; write the name in its ASCII form (xn--...)")
    if "%" in text:
        raise BadDestination(f"{_quote_text(text)} holds a `%`: no host is percent-encoded or bound to a zone")
    if text.startswith("["):
        return _ipv6(text)
    name = text.lower().removesuffix(".")
    if len(name) > LONGEST_NAME:
        raise BadDestination(f"{_quote_text(text)} is too long for a host")
    if _ends_in_number(name):
        return _ipv4(name, text)
    for label in name.split("."):
        if not _LABEL.fullmatch(label):
            raise BadDestination(f"{_quote_text(text)} is not a host name of letters, digits and inner hyphens")
    return name


def _ends_in_number(name: str) -> bool:
    """Return whether other parsers take a name for an IPv4 address in some notation."""
    return _NUMBER.fullmatch(name.rpartition(".")[2]) is not None


def _ipv4(name: str, text: str) -> str:
    try:
        address = IPv4Address(name)
    except AddressValueError:
        raise BadDestination(f"{_quote_text(text)} is not a plain IPv4 address; write four decimal numbers") from None
    if text.endswith("."):
        raise BadDestination(f"{_quote_text(text)} is an address with a dot behind it")
    return str(address)


def _ipv6(text: str) -> str:
    try:
        address = IPv6Address(text[1:-1])
    except AddressValueError:
        raise BadDestination(f"{_quote_text(text)} is not an IPv6 address") from None
    if "." in text:
        raise BadDestination(f"{_quote_text(text)} is written half as IPv4; write an IPv6 address in hexadecimal")
    if carried := carried_ipv4(address):
        raise BadDestination(f"{_quote_text(text)} is {carried}; write the address that is meant")
    return str(address)


def carried_ipv4(address: IPv6Address) -> str | None:
    """Return the kind of an address that embeds an IPv4 address, else None: a destination must have only one name."""
    if address in _COMPATIBLE and int(address) > 1:
        return "an IPv4-compatible address"
    return next((what for network, what in _CARRIES_IPV4.items() if address in network), None)


def _quote_text(text: str) -> str:
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return ascii(cut)


# Addresses outside the public internet, by the registries of special-purpose addresses

WhyNot: TypeAlias = Callable[[Address], str | None]
"""Returns why an address may be connected to only if it is listed itself; None if it needs no listing."""

_METADATA = """169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 192.0.0.192
    fd00:ec2::254 fd00:ec2::23 fd20:ce::254"""
METADATA = frozenset(map(ip_address, _METADATA.split()))
"""Addresses where clouds hand out the machine's credentials. Each must be listed by itself: no range includes it."""
_SPECIAL = {
    "an unspecified address": "0.0.0.0/8 ::/128",
    "a private address": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7",
    "an address inside a carrier's network": "100.64.0.0/10",
    "a loopback address": "127.0.0.0/8 ::1/128",
    "a link-local address": "169.254.0.0/16 fe80::/10",
    "a site-local address": "fec0::/10",
    "an address for documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    "an address for protocols": "192.0.0.0/24 2001::/23",
    "an anycast address for name servers": "192.31.196.0/24 192.175.48.0/24 2620:4f:8000::/48",
    "an anycast address for multicast": "192.52.193.0/24",
    "a 6to4 relay": "192.88.99.0/24",
    "an address for benchmarks": "198.18.0.0/15",
    "a multicast address": "224.0.0.0/4 ff00::/8",
    "a reserved address": "240.0.0.0/4",
}
_NETWORKS = [(ip_network(network), what) for what, networks in _SPECIAL.items() for network in networks.split()]
_GLOBAL = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_UNOWNED: dict[int, Address] = {4: IPv4Address("192.0.2.1"), 6: IPv6Address("2001:db8::1")}


def why_special(address: Address) -> str | None:
    """Return the kind of an address that is not public or is this machine's own; None for others."""
    return special_kind(address) or ("an address of this machine" if _is_own(address) else None)


def special_kind(address: Address) -> str | None:
    """Return the kind of an address; None for one of the public internet."""
    if address in METADATA:
        return "a metadata address of a cloud"
    if address in _NAT64:
        # Resolvers of IPv6-only networks return such an address for any IPv4 host: the embedded address counts.
        return special_kind(IPv4Address(int(address) & 0xFFFFFFFF))
    carried = carried_ipv4(address) if isinstance(address, IPv6Address) else None
    if found := carried or next((what for network, what in _NETWORKS if address in network), None):
        return found
    is_public = address.version == 4 or address in _GLOBAL
    return None if is_public else "no address of the public internet"


def _is_own(address: Address) -> bool:
    """Return whether an address is this machine's own. Asks the kernel; nothing is sent."""
    if _can_be_bound(address) and not _can_be_bound(_UNOWNED[address.version]):
        return True
    try:
        with socket.socket(_FAMILIES[address.version], socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0].partition("%")[0]) == address
    except OSError:  # no route: then it cannot be connected to either
        return False


def _can_be_bound(address: Address) -> bool:
    """Return whether an address can be bound: only the machine's own can, unless it is set up to accept others too."""
    try:
        with socket.socket(_FAMILIES[address.version], socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
