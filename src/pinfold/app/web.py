"""Requests that tools make: through the session's one way out, judged as a part of the action they are made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pinfold.app.doing import now_doing
from pinfold.app.outgoing import Running, WayOut
from pinfold.events import Sent
from pinfold.tools import BadCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    status: int
    url: str
    mime: str
    body: bytes
    is_cut: bool
    sent: tuple[Sent, ...]


class WebAccess:
    def __init__(self, way: WayOut) -> None:
        self._way = way

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
        max_bytes: int,
    ) -> Answered:
        """Raises BadCall."""
        from pinfold.net import FetchLimits, NetError, fetch, read_url

        what = now_doing()
        if what is None:
            raise BadCall("requests can only be made for an action")
        running = Running(what.ask, cleared={*what.cleared})
        try:
            to = read_url(url).destination
            fetched = await fetch(
                url,
                egress=self._way.egress_for(running),
                method=method,
                headers=headers,
                body=body,
                limits=FetchLimits(body_bytes=max_bytes, whole_s=timeout_s),
            )
        except NetError as error:
            raise BadCall(str(error)) from error
        charset = f"; charset={fetched.charset}" if fetched.charset else ""
        return Answered(
            status=fetched.status,
            url=fetched.url,
            mime=f"{fetched.mime}{charset}",
            body=fetched.body,
            is_cut=not fetched.is_whole,
            sent=(Sent(to=str(to), out=fetched.sent, back=len(fetched.body)),),
        )
