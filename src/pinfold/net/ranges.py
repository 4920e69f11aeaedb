"""Which addresses are not of the public internet, by the registries of special-purpose addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

from pinfold.net.hosts import Address, carried_ipv4

WhyNot: TypeAlias = Callable[[Address], str | None]
"""Why an address may not be connected to unless it is listed itself; None if it may."""

METADATA = frozenset(
    ip_address(text)
    for text in """169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 192.0.0.192
    fd00:ec2::254 fd00:ec2::23 fd20:ce::254""".split()  # noqa: SIM905
)
"""Where clouds hand out the machine's credentials. They must be listed one by one: no range includes them."""
_IPV4 = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "an address inside a carrier's network"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "an address for protocols"),
        ("192.0.2.0/24", "an address for documentation"),
        ("192.31.196.0/24", "an anycast address for name servers"),
        ("192.52.193.0/24", "an anycast address for multicast"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private address"),
        ("192.175.48.0/24", "an anycast address for name servers"),
        ("198.18.0.0/15", "an address for benchmarks"),
        ("198.51.100.0/24", "an address for documentation"),
        ("203.0.113.0/24", "an address for documentation"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
)
_IPV6 = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "an unspecified address"),
        ("::1/128", "a loopback address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/23", "an address for protocols"),
        ("2001:db8::/32", "an address for documentation"),
        ("2620:4f:8000::/48", "an anycast address for name servers"),
        ("3fff::/20", "an address for documentation"),
    )
)
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
    if isinstance(address, IPv4Address):
        return next((what for network, what in _IPV4 if address in network), None)
    if address in _NAT64:
        # Resolvers of IPv6-only networks answer so for any IPv4 host: the address inside counts.
        return what_is(IPv4Address(int(address) & 0xFFFFFFFF))
    if found := carried_ipv4(address):
        return found
    if found := next((what for network, what in _IPV6 if address in network), None):
        return found
    return None if address in _GLOBAL else "no address of the public internet"


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
