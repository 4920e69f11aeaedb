"""What the guest tells of its variables: a list of them all, and pages of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import asdict

from pinfold.sandbox.abilities import MOST_ROWS, PageQuery, PageRefused, VariablePage
from pinfold.sandbox.contract import SandboxUnavailable, Variable
from pinfold.sandbox.session.channel import INVENTORY_BYTES, PAGE_BYTES, ChannelBroken, inventory, variable_page
from pinfold.sandbox.session.guest_slot import GuestSlot

PAGE_S = 10.0
"""How long a page may take before it is interrupted."""
PAGE_GRACE_S = 30.0
"""How long a library may take until it notices: no signal stops its sorting, and killing it would lose variables."""
_T = TypeVar("_T")


async def list_variables(slot: GuestSlot) -> tuple[Variable, ...]:
    return _read(slot, inventory, (await slot.ask("variables", b"", INVENTORY_BYTES)).body)


async def read_page(slot: GuestSlot, name: str, query: PageQuery) -> VariablePage:
    """Raises PageRefused, SandboxUnavailable."""
    if not 1 <= query.limit <= MOST_ROWS:
        raise PageRefused(f"limit is {query.limit}; give 1 to {MOST_ROWS}")
    if query.offset < 0:
        raise PageRefused(f"offset is {query.offset}; give 0 or more")
    body = json.dumps({"name": name, **asdict(query)}).encode()
    reply = await slot.ask_patiently("page", body, PAGE_BYTES, PAGE_S, PAGE_GRACE_S)
    if reply.status == "refused":
        raise PageRefused(reply.body.decode("utf-8", "replace"))
    return _read(slot, variable_page, reply.body)


def _read(slot: GuestSlot, decode: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return decode(body)
    except ChannelBroken as broken:
        if slot.guest is not None:
            slot.guest.kill(f"its channel was broken: {broken}")
        raise SandboxUnavailable(f"the guest broke its channel: {broken}") from broken
