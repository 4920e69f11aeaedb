"""Which addresses are not of the public internet, by the registries of special-purpose addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from pinfold.net.hosts import Address, carried_ipv4

WhyNot: TypeAlias = Callable[[Address], str | None]
"""Why an address may not be connected to unless it is listed itself; None if it may."""

_METADATA = """169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 192.0.0.192
    fd00:ec2::254 fd00:ec2::23 fd20:ce::254"""
METADATA = frozenset(map(ip_address, _METADATA.split()))
"""Where clouds hand out the machine's credentials. They must be listed one by one: no range includes them."""
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
    """The kind of an address that is not public, or is one of this machine's own; None for others."""
    return what_is(address) or ("an address of this machine" if _is_own(address) else None)


def what_is(address: Address) -> str | None:
    """None for an address of the public internet."""
    if address in METADATA:
        return "a metadata address of a cloud"
    if address in _NAT64:
        # Resolvers of IPv6-only networks answer so for any IPv4 host: the address inside counts.
        return what_is(IPv4Address(int(address) & 0xFFFFFFFF))
    carried = carried_ipv4(address) if isinstance(address, IPv6Address) else None
    if found := carried or next((what for network, what in _NETWORKS if address in network), None):
        return found
    is_public = address.version == 4 or address in _GLOBAL
    return None if is_public else "no address of the public internet"


def _is_own(address: Address) -> bool:
    """Asks the kernel; nothing is sent."""
    if _can_be_bound(address) and not _can_be_bound(_UNOWNED[address.version]):
        return True
    try:
        with socket.socket(_FAMILIES[address.version], socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0].partition("%")[0]) == address
    except OSError:  # no route: then nothing will be reached either
        return False


def _can_be_bound(address: Address) -> bool:
    """Only an own address can be bound, unless the machine is set up to accept others too."""
    try:
        with socket.socket(_FAMILIES[address.version], socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
