"""Requests that tools make: through the session's one way out, judged as a part of the action they are made for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pinfold.app.session.action_context import current_action
from pinfold.app.session.egress import RunningAction, SessionEgress
from pinfold.events import Sent
from pinfold.tools import BadCall
from pinfold.tools.ports import Fetched

if TYPE_CHECKING:
    from pinfold.net import Fetched as Page


class WebAccess:
    """`told`: what a host is told besides, on the user's behalf, and only where nobody can listen in."""

    def __init__(self, way: SessionEgress, told: Callable[[str], Mapping[str, str]] | None = None) -> None:
        self._way = way
        self._told = told

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout_s: float, max_bytes: int
    ) -> Fetched:
        """Raises BadCall."""
        from pinfold.net import FetchLimits, NetError, fetch, read_url

        what = current_action()
        if what is None:
            raise BadCall("requests can only be made for an action")
        try:
            address = read_url(url)
            to = address.destination
            stays = to.address is not None and to.address.is_loopback
            if self._told and (address.scheme == "https" or stays):
                headers = {**self._told(to.host), **headers}
        except NetError as error:
            raise BadCall(str(error)) from error
        running = RunningAction(what.ask_to_connect, cleared={*what.cleared})
        said = sum(map(len, (*headers, *headers.values()))) + len(body or b"")
        try:
            page = await fetch(
                url,
                egress=self._way.egress_for(running),
                method=method,
                headers=headers,
                body=body,
                limits=FetchLimits(body_bytes=max_bytes, whole_s=timeout_s),
            )
        except NetError as error:
            # It may have got as far as where the answer pointed elsewhere, and never less is told than left.
            gone = (Sent(to=str(to), out=len(url) + said, back=0),) if to in running.cleared else ()
            raise BadCall(str(error), sent=gone) from error
        charset = f"; charset={page.charset}" if page.charset else ""
        return Fetched(
            status=page.status,
            url=page.url,
            mime=f"{page.mime}{charset}",
            body=page.body,
            is_cut=not page.is_whole,
            sent=_list_sent(page, said),
        )


def _list_sent(page: Page, said: int) -> tuple[Sent, ...]:
    """Each server was told its own address; headers and body went to the first, the answer came from the last."""
    from pinfold.net import read_url

    last = len(page.hops) - 1
    return tuple(
        Sent(
            to=str(read_url(hop).destination),
            out=len(hop) + (said if number == 0 else 0),
            back=len(page.body) if number == last else 0,
        )
        for number, hop in enumerate(page.hops)
    )
