"""Network egress: allow-list, then gate, then resolver, then a connection to one of the checked addresses only."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Literal, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct

from pinfold.net.hosts import (
    METADATA,
    Address,
    BadDestination,
    BadPattern,
    Destination,
    Refused,
    Unreachable,
    WhyNot,
    parse_authority,
    why_special,
)

WEB_PORTS = frozenset((80, 443))
WIDEST = {4: 8, 6: 7}
"""The shortest allowed prefix of a range, by IP version; a wider range would be most of the internet."""
_RANGE = re.compile(r"\[?([0-9A-Fa-f.:]+)/([0-9]{1,3})\]?(?::([1-9][0-9]{0,4}))?")
_PORT = re.compile(r".*:[0-9]+", re.DOTALL)
_Network: TypeAlias = IPv4Network | IPv6Network


class AllowList:
    """Matches canonical destinations against patterns; resolves nothing. An empty list allows nothing.

    api.github.com          this host, on ports 80 and 443
    api.github.com:8443     this host, on this port
    *.example.org           every host below, not example.org itself
    10.1.2.3:8000           this address; a private address must be listed in this way
    10.0.0.0/8  fd00::/8    every address in the range, on ports 80 and 443
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Raises BadPattern."""
        self.patterns = tuple(patterns)
        self._names: dict[str, frozenset[int]] = {}
        """Ports by host; a domain begins with a dot."""
        self._ranges: list[tuple[_Network, frozenset[int]]] = []
        for pattern in self.patterns:
            self._add(pattern)

    def lists(self, destination: Destination) -> bool:
        address = destination.address
        if address is not None:
            return self.lists_address(address, destination.port)
        parts = destination.host.split(".")
        domains = (f".{'.'.join(parts[at:])}" for at in range(1, len(parts)))
        return any(destination.port in self._names.get(name, ()) for name in (destination.host, *domains))

    def lists_address(self, address: Address, port: int) -> bool:
        """Return whether the address or its range is listed; a metadata address only by itself. Names do not count."""
        return any(
            address in network and port in ports
            for network, ports in self._ranges
            if address not in METADATA or network.num_addresses == 1
        )

    def _add(self, pattern: str) -> None:
        if pattern == "*":
            raise BadPattern("the pattern '*' would allow every host; list hosts, or a domain as '*.example.org'")
        if "://" in pattern:
            raise BadPattern(f"the pattern {pattern!r} is a URL; list its host alone")
        if "/" in pattern:
            self._add_range(pattern)
            return
        is_domain = pattern.startswith("*.")
        rest = pattern.removeprefix("*.")
        if "*" in rest:
            raise BadPattern(f"the pattern {pattern!r} has a '*' that is not a first part of its own: '*.'")
        destination, ports = _read(pattern, rest)
        if destination.address is not None:
            if is_domain:
                raise BadPattern(f"the pattern {pattern!r} is not a domain; list addresses as 10.0.0.0/8")
            self._ranges.append((ip_network(destination.host), ports))
            return
        if is_domain and "." not in destination.host:
            raise BadPattern(f"the pattern {pattern!r} is too wide; name a domain, as in '*.example.org'")
        name = f".{destination.host}" if is_domain else destination.host
        self._names[name] = self._names.get(name, frozenset()) | ports

    def _add_range(self, pattern: str) -> None:
        found = _RANGE.fullmatch(pattern)
        try:
            network = ip_network(f"{found[1]}/{found[2]}") if found else None
        except ValueError as error:
            raise BadPattern(f"the pattern {pattern!r} is not a range of addresses: {error}") from None
        if found is None or network is None:
            raise BadPattern(f"the pattern {pattern!r} is neither a host nor a range of addresses")
        if network.prefixlen < WIDEST[network.version]:
            raise BadPattern(f"the pattern {pattern!r} is too wide; /{WIDEST[network.version]} is the widest range")
        if found[3] and int(found[3]) >= 1 << 16:
            raise BadPattern(f"the pattern {pattern!r} has no valid port; ports are 1 to 65535")
        self._ranges.append((network, frozenset((int(found[3]),)) if found[3] else WEB_PORTS))


def _read(pattern: str, rest: str) -> tuple[Destination, frozenset[int]]:
    is_bare_ipv6 = rest.count(":") > 1 and not rest.startswith("[")
    text = f"[{rest}]" if is_bare_ipv6 else rest
    has_port = not is_bare_ipv6 and _PORT.fullmatch(text.rpartition("]")[2]) is not None
    try:
        destination = parse_authority(text, port=443)
    except BadDestination as error:
        raise BadPattern(f"the pattern {pattern!r} is wrong: {error}") from None
    return destination, frozenset((destination.port,)) if has_port else WEB_PORTS


_log = logging.getLogger(__name__)
_T = TypeVar("_T")

How: TypeAlias = Literal["tunnel", "request"]
"""`tunnel`: opaque bytes both ways. `request`: one HTTP request."""
Gate: TypeAlias = Callable[[Destination, How], Awaitable[str | None]]
"""None allows; a text is the one-line reason for a refusal. An exception is logged and refuses."""
Unlisted: TypeAlias = Literal["refuse", "ask"]
"""An unlisted destination is refused, or the gate decides, which can check `allow.lists`."""

Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name, best first. Raises OSError if there are none."""
LOOKUPS = 16
"""The most lookups at once; a thread that waits for a name server cannot be cancelled."""

_under_way = threading.BoundedSemaphore(LOOKUPS)


class EgressLimits(Struct, frozen=True, kw_only=True):
    gate_s: float = 600.0
    """Time for the gate, which may have to wait for a person."""
    resolve_s: float = 10.0
    connect_s: float = 10.0
    """Time to connect to one address."""
    addresses: int = 4
    """The most addresses tried for one name."""


async def open_gate(_destination: Destination, _how: How) -> None:
    """Allow everything, so that the list alone decides."""


async def system_resolver(host: str) -> list[str]:
    """Resolve a name as other programs of this machine do."""
    if not _under_way.acquire(blocking=False):
        raise OSError(f"more than {LOOKUPS} lookups are under way")

    def look_up() -> list[str]:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(place[0]) for *_, place in found))
        finally:
            _under_way.release()

    return await anyio.to_thread.run_sync(look_up, abandon_on_cancel=True)


@dataclass(eq=False)
class Egress:
    """Checks and connects to destinations, for both the proxy and `fetch`."""

    allow: AllowList
    """May be replaced at any time, also by the gate; open connections stay."""
    gate: Gate = open_gate
    _: KW_ONLY
    unlisted: Unlisted = "refuse"
    limits: EgressLimits = field(default_factory=EgressLimits)
    resolver: Resolver = system_resolver
    why_not: WhyNot = why_special

    async def resolve_allowed(self, destination: Destination, how: How) -> tuple[Address, ...]:
        """Return the only addresses to connect to. Raises Refused and Unreachable.

        No name server sees a name before list and gate have allowed it: a name can carry data too.
        """
        if self.unlisted == "refuse" and not self.allow.lists(destination):
            raise Refused(f"{destination} is not on the list of allowed hosts")
        if reason := await self._ask_gate(destination, how):
            raise Refused(reason)
        address = destination.address
        found = (address,) if address else await self._look_up(destination.host)
        for one in found:
            what = self.why_not(one)
            if what and not self.allow.lists_address(one, destination.port):
                leads = f"{destination.host} is" if address else f"{destination.host} leads to {one},"
                pattern = Destination(str(one), destination.port)
                raise Refused(f"{leads} {what}; to allow it, list {str(pattern)!r}")
        return found

    async def _look_up(self, host: str) -> tuple[Address, ...]:
        within_s = self.limits.resolve_s
        try:
            with anyio.fail_after(within_s):
                texts = await self.resolver(host)
        except TimeoutError:
            raise Unreachable(f"{host} was not found within {within_s:g} s: the name server is silent") from None
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"{host} was not found: {getattr(error, 'strerror', None) or error}") from None
        try:
            found = tuple(dict.fromkeys(ip_address(text) for text in texts))
        except ValueError:
            raise Refused(f"{host} leads to something that is not an address") from None
        if not found:
            raise Unreachable(f"{host} has no address")
        if any(getattr(one, "scope_id", None) for one in found):
            raise Refused(f"{host} leads to an address that is bound to a zone")
        return found

    async def connect(self, destination: Destination, how: How) -> socket.socket:
        """Return a connected, non-blocking socket. Raises Refused and Unreachable."""
        return await self.first_open(destination, await self.resolve_allowed(destination, how), _open_socket)

    async def first_open(
        self,
        destination: Destination,
        addresses: tuple[Address, ...],
        open_one: Callable[[Address, int], Awaitable[_T]],
    ) -> _T:
        """Try the addresses one after the other. Raises Unreachable."""
        failures: list[str] = []
        for address in addresses[: self.limits.addresses]:
            try:
                with anyio.fail_after(self.limits.connect_s):
                    return await open_one(address, destination.port)
            except TimeoutError:
                failures.append(f"{address} did not answer within {self.limits.connect_s:g} s")
            except OSError as error:
                failures.append(f"{address}: {error.strerror or error}")
        raise Unreachable(f"{destination} could not be reached: {'; '.join(failures)}")

    async def _ask_gate(self, destination: Destination, how: How) -> str | None:
        try:
            with anyio.fail_after(self.limits.gate_s):
                return await self.gate(destination, how)
        except TimeoutError:
            return f"{destination} was not allowed within {self.limits.gate_s:g} s"
        except Exception:  # noqa: BLE001 - the caller's own code: whatever it raises, nothing may pass
            _log.exception("the gate failed for %s", destination)
            return f"whether {destination} is allowed could not be asked"


async def _open_socket(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with ExitStack() as stack:
        peer = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(peer, (str(address), port))
        stack.pop_all()
    return peer
