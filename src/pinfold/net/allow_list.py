"""The allow-list: which destinations are meant by its patterns. Sees canonical destinations only, and resolves nothing.

api.github.com          this host, on ports 80 and 443
api.github.com:8443     this host, on this port
*.example.org           every host below, not example.org itself
10.1.2.3:8000           this address; a private one is reached only where it is listed so
10.0.0.0/8  fd00::/8    every address in the range, on ports 80 and 443
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TypeAlias

from pinfold.net.hosts import METADATA, Address, BadDestination, BadPattern, Destination, parse_authority

WEB_PORTS = frozenset((80, 443))
WIDEST = {4: 8, 6: 7}
"""Bits of a range at least; a wider one would be most of the internet."""
_RANGE = re.compile(r"\[?([0-9A-Fa-f.:]+)/([0-9]{1,3})\]?(?::([1-9][0-9]{0,4}))?")
_PORT = re.compile(r".*:[0-9]+", re.DOTALL)
_Network: TypeAlias = IPv4Network | IPv6Network


class AllowList:
    """An empty one allows nothing."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Raises BadPattern."""
        self.patterns = tuple(patterns)
        self._hosts: dict[str, frozenset[int]] = {}
        self._domains: dict[str, frozenset[int]] = {}
        """By their end, with the dot."""
        self._ranges: list[tuple[_Network, frozenset[int]]] = []
        for pattern in self.patterns:
            self._add(pattern)

    def lists(self, destination: Destination) -> bool:
        address = destination.address
        if address is not None:
            return self.lists_address(address, destination.port)
        if destination.port in self._hosts.get(destination.host, ()):
            return True
        parts = destination.host.split(".")
        ends = (f".{'.'.join(parts[at:])}" for at in range(1, len(parts)))
        return any(destination.port in self._domains.get(end, ()) for end in ends)

    def lists_address(self, address: Address, port: int) -> bool:
        """By the address itself or a range, never by a name. Metadata addresses by themselves only."""
        return any(
            address in network and port in ports
            for network, ports in self._ranges
            if address not in METADATA or network.num_addresses == 1
        )

    def _add(self, pattern: str) -> None:
        if pattern == "*":
            raise BadPattern(
                "the pattern '*' would allow every host; list hosts by name, or a domain as '*.example.org'"
            )
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
                raise BadPattern(f"the pattern {pattern!r} is no domain; list addresses as 10.0.0.0/8")
            self._ranges.append((ip_network(destination.host), ports))
        elif not is_domain:
            self._hosts[destination.host] = self._hosts.get(destination.host, frozenset()) | ports
        elif "." not in destination.host:
            raise BadPattern(f"the pattern {pattern!r} is too wide; name a domain, as in '*.example.org'")
        else:
            end = f".{destination.host}"
            self._domains[end] = self._domains.get(end, frozenset()) | ports

    def _add_range(self, pattern: str) -> None:
        found = _RANGE.fullmatch(pattern)
        try:
            network = ip_network(f"{found[1]}/{found[2]}") if found else None
        except ValueError as error:
            raise BadPattern(f"the pattern {pattern!r} is no range of addresses: {error}") from None
        if found is None or network is None:
            raise BadPattern(f"the pattern {pattern!r} is no host and no range of addresses")
        if network.prefixlen < WIDEST[network.version]:
            raise BadPattern(f"the pattern {pattern!r} is too wide; /{WIDEST[network.version]} is the widest range")
        if found[3] and int(found[3]) >= 1 << 16:
            raise BadPattern(f"the pattern {pattern!r} has no valid port; one is 1 to 65535")
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
