"""The way out: what is listed, who is asked, which addresses a name has, and a connection to one of these and no other."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias, TypeVar

import anyio
from msgspec import Struct

from pinfold.net.allow_list import AllowList
from pinfold.net.dns import Resolver, addresses_of, system_resolver
from pinfold.net.errors import Refused, Unreachable
from pinfold.net.hosts import Address, Destination
from pinfold.net.ranges import WhyNot, why_special

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

How: TypeAlias = Literal["tunnel", "request"]
"""`tunnel`: bytes nobody here can read, both ways. `request`: one HTTP request."""
Gate: TypeAlias = Callable[[Destination, How], Awaitable[str | None]]
"""None: go. Else why not, in one line. What it raises is logged and refuses."""
Unlisted: TypeAlias = Literal["refuse", "ask"]
"""What happens to a destination that is not listed: it is refused, or the gate decides, which can ask `allow.lists`."""


class EgressLimits(Struct, frozen=True, kw_only=True):
    gate_s: float = 600.0
    """For the gate to answer, which may have to wait for a person."""
    resolve_s: float = 10.0
    connect_s: float = 10.0
    """For each address."""
    addresses: int = 4
    """Tried of one name."""


async def open_gate(_destination: Destination, _how: How) -> None:
    """Where the list alone decides."""


class Egress:
    """One way out, for the proxy and for `fetch` alike."""

    def __init__(
        self,
        allow: AllowList,
        gate: Gate = open_gate,
        *,
        unlisted: Unlisted = "refuse",
        limits: EgressLimits | None = None,
        resolver: Resolver = system_resolver,
        why_not: WhyNot = why_special,
    ) -> None:
        self.allow = allow
        """May be replaced at any time, by the gate too; what is connected stays so."""
        self._gate = gate
        self._unlisted = unlisted
        self._limits = limits or EgressLimits()
        self._resolver = resolver
        self._why_not = why_not

    async def resolve_allowed(self, destination: Destination, how: How) -> tuple[Address, ...]:
        """The addresses to connect to, and no others. Raises Refused and Unreachable.

        No name server hears of a destination before list and gate have let it pass: a name can carry data too.
        """
        if self._unlisted == "refuse" and not self.allow.lists(destination):
            raise Refused(f"{destination} is not on the list of allowed hosts")
        if reason := await self._ask_gate(destination, how):
            raise Refused(reason)
        return await addresses_of(destination, self.allow, self._why_not, self._resolver, self._limits.resolve_s)

    async def connect(self, destination: Destination, how: How) -> socket.socket:
        """A non-blocking socket. Raises Refused and Unreachable."""
        return await self.first_open(destination, await self.resolve_allowed(destination, how), _open_socket)

    async def first_open(
        self,
        destination: Destination,
        addresses: tuple[Address, ...],
        open_one: Callable[[Address, int], Awaitable[_T]],
    ) -> _T:
        """One after the other. Raises Unreachable."""
        failures: list[str] = []
        for address in addresses[: self._limits.addresses]:
            try:
                with anyio.fail_after(self._limits.connect_s):
                    return await open_one(address, destination.port)
            except TimeoutError:
                failures.append(f"{address} did not answer within {self._limits.connect_s:g} s")
            except OSError as error:
                failures.append(f"{address}: {error.strerror or error}")
        raise Unreachable(f"{destination} could not be reached: {'; '.join(failures)}")

    async def _ask_gate(self, destination: Destination, how: How) -> str | None:
        try:
            with anyio.fail_after(self._limits.gate_s):
                return await self._gate(destination, how)
        except TimeoutError:
            return f"nobody allowed {destination} within {self._limits.gate_s:g} s"
        except Exception:  # noqa: BLE001 - the caller's own code: whatever it raises, nothing may pass
            _log.exception("the gate failed for %s", destination)
            return f"{destination} could not be asked about"


async def _open_socket(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    peer = socket.socket(family, socket.SOCK_STREAM)
    try:
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(peer, (str(address), port))
    except BaseException:
        peer.close()
        raise
    return peer
