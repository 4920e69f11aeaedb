"""From a name to the addresses it may be reached at: asked once, every answer checked, none asked for again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import TypeAlias

import anyio
import anyio.to_thread

from pinfold.net.allow_list import AllowList
from pinfold.net.errors import Refused, Unreachable
from pinfold.net.hosts import Address, Destination
from pinfold.net.ranges import WhyNot

Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a host by name, best first. Raises OSError where there are none."""
LOOKUPS = 16
"""Under way at once; a thread that waits for a name server cannot be cut short."""

_under_way = threading.BoundedSemaphore(LOOKUPS)


async def system_resolver(host: str) -> list[str]:
    """As every program of this machine would."""
    if not _under_way.acquire(blocking=False):
        raise OSError(f"more than {LOOKUPS} lookups are under way")

    def look_up() -> list[str]:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(place[0]) for *_, place in found))
        finally:
            _under_way.release()

    return await anyio.to_thread.run_sync(look_up, abandon_on_cancel=True)


async def addresses_of(
    destination: Destination, allow: AllowList, why_not: WhyNot, resolver: Resolver, within_s: float
) -> tuple[Address, ...]:
    """All of them, each one fit to be connected to. Raises Refused if any is not, Unreachable if there are none."""
    address = destination.address
    if address is not None:
        found: tuple[Address, ...] = (address,)
    else:
        found = await _looked_up(destination, resolver, within_s)
    for one in found:
        what = why_not(one)
        if what and not allow.lists_address(one, destination.port):
            leads = f"{destination.host} is" if address else f"{destination.host} leads to {one},"
            raise Refused(f"{leads} {what}; to allow it, list {_pattern(one, destination.port)!r}")
    return found


async def _looked_up(destination: Destination, resolver: Resolver, within_s: float) -> tuple[Address, ...]:
    host = destination.host
    try:
        with anyio.fail_after(within_s):
            texts = await resolver(host)
    except TimeoutError:
        raise Unreachable(f"{host} was not found within {within_s:g} s: the name server is silent") from None
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"{host} was not found: {getattr(error, 'strerror', None) or error}") from None
    try:
        found = tuple(dict.fromkeys(ip_address(text) for text in texts))
    except ValueError:
        raise Refused(f"{host} leads to something that is no address") from None
    if not found:
        raise Unreachable(f"{host} has no address")
    if any(getattr(one, "scope_id", None) for one in found):
        raise Refused(f"{host} leads to an address that is bound to a zone")
    return found


def _pattern(address: Address, port: int) -> str:
    return str(Destination(str(address), port)) if "%" not in str(address) else str(address)
