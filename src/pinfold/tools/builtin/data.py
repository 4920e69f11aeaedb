"""Tables at any size, worked out inside the session. What was worked out is kept by the content it is of."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, TypeAlias

from pinfold.tools.builtin.programs import Reply, ask
from pinfold.tools.errors import BadCall
from pinfold.tools.ports import Inside

View: TypeAlias = Literal["peek", "shape", "columns", "stats"]
VIEW_S = 300.0
KEPT = 64
"""Results; each is a few kilobytes."""
KEPT_CHARACTERS = 1 << 20
_Key: TypeAlias = tuple[str, str, str]
"""The content's hash, how its name ends, what was asked of it."""


class DataView:
    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._kept: OrderedDict[_Key, tuple[int, str]] = OrderedDict()
        """With the size of the content."""

    async def data_view(self, path: str, view: View = "peek", rows: int = 5) -> str:
        if rows < 1:
            raise BadCall("rows is at least 1")
        ending = path.rpartition("/")[2]
        known = {key[0]: size for key, (size, _) in self._kept.items() if key[1:] == (ending, view)}
        given = {"path": path, "view": view, "rows": rows, "known": known}
        reply = await ask(self._inside, "tables", "view", given, timeout_s=VIEW_S)
        same = reply.get("same")
        if isinstance(same, str) and (same, ending, view) in self._kept:
            self._kept.move_to_end((same, ending, view))
            return self._kept[same, ending, view][1]
        text = reply.text()
        if view != "peek":
            self._keep(reply, ending, view, text)
        return text

    def _keep(self, reply: Reply, ending: str, view: View, text: str) -> None:
        digest = reply.get("digest")
        if not isinstance(digest, str) or not digest or len(digest) > 128:
            return  # it changed while it was read
        self._kept[digest, ending, view] = (reply.count("size"), text)
        while len(self._kept) > KEPT or sum(len(one) for _, one in self._kept.values()) > KEPT_CHARACTERS:
            self._kept.popitem(last=False)
