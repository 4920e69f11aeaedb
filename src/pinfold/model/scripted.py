"""A model whose replies are written in a file. Product code: demos, tests and checks all drive the product with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio

from pinfold.events import Reply, Request, RequestFailed
from pinfold.model.errors import BadScript
from pinfold.model.lines import KeptReply, read_lines, render_request, resume_at
from pinfold.text import cap_text

_END = KeptReply(text="(end of script)")
_CHUNK = 24


class ScriptedModel:
    """Gives the lines in order, one for each request. `served` are the marks of lines given out before."""

    def __init__(self, lines: Sequence[KeptReply], *, name: str = "scripted", served: Sequence[str] = ()) -> None:
        self.name = name
        self._lines = lines
        self._next = resume_at(lines, served)

    @classmethod
    def from_file(cls, path: Path, served: Sequence[str] = ()) -> ScriptedModel:
        return cls(read_lines(path), name=f"scripted:{path}", served=served)

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """Pieces of text as they come, then the whole reply."""
        kept = self._lines[self._next] if self._next < len(self._lines) else self._on_exhausted()
        await anyio.sleep(kept.delay_s)
        # Only now: a request that was interrupted meanwhile did not use its line up.
        self._next += 1
        if kept.expect is not None and kept.expect not in (context := render_request(request)):
            raise BadScript(
                f"{self.name}, reply {self._next}: the context should contain {kept.expect!r} but does not; "
                f"it ends with {cap_text(context[-400:], 400)!r}"
            )
        if kept.error is not None:
            raise RequestFailed(kept.error, status=kept.status, request_id=kept.mark)
        for start in range(0, len(kept.text), _CHUNK):
            yield kept.text[start : start + _CHUNK]
        # The end is no line of the file: it has no mark, and a resumed session does not count it.
        yield kept.reply("" if kept is _END else kept.mark)

    async def aclose(self) -> None:
        """Nothing is held open."""

    def _on_exhausted(self) -> KeptReply:
        return _END
