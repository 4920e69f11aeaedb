"""Paper for tests: what is written is kept as a terminal would get it, and can be seen on a screen."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from hashlib import sha256

import pyte
from rich.console import Console, RenderableType

from pinfold.app import PictureMode
from pinfold.events import BlobId, Delta, Entry, Event, SessionId
from pinfold.front.chat.renderers.event_renderer import EventRenderer

SESSION = SessionId("s_0123456789ab")


class KeptTranscript:
    """A rich console that writes into memory."""

    def __init__(self, width: int = 80, *, colour: bool = True) -> None:
        self._file = io.StringIO()
        self._console = Console(
            file=self._file,
            width=width,
            force_terminal=colour,
            color_system="truecolor" if colour else None,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )
        self.colour = self.steered = colour
        self.lives: list[str | None] = []
        """What stood in the live region, one after the other."""

    @property
    def width(self) -> int:
        return self._console.width

    def write(self, *things: RenderableType) -> None:
        for thing in things:
            self._console.print(thing)

    def raw(self, data: str, rows: int) -> None:
        assert data.count("\n") == rows
        self._file.write(data)

    def live(self, thing: RenderableType | None) -> None:
        if thing is None:
            self.lives.append(None)
            return
        with self._console.capture() as captured:
            self._console.print(thing)
        self.lives.append(captured.get())

    @property
    def sent(self) -> str:
        """All bytes, as text."""
        return self._file.getvalue()

    @property
    def text(self) -> str:
        """Without colours, and without blanks at the ends of lines."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self.sent)
        return "\n".join(line.rstrip() for line in plain.split("\n"))

    def screen(self, rows: int = 200) -> pyte.Screen:
        screen = pyte.Screen(self.width, rows)
        pyte.Stream(screen).feed(self.sent.replace("\n", "\r\n"))
        return screen


class Shelf:
    """Blobs."""

    def __init__(self) -> None:
        self.blobs: dict[BlobId, bytes] = {}

    def put(self, data: bytes) -> BlobId:
        name = BlobId("sha256:" + sha256(data).hexdigest())
        self.blobs[name] = data
        return name

    async def get(self, blob: BlobId) -> bytes:
        return self.blobs[blob]


def entry(event: Event, seq: int = 1) -> Entry:
    return Entry(seq=seq, session=SESSION, at="2026-11-16T03:00:00Z", event=event)


async def told(
    *items: Event | Delta,
    shelf: Shelf | None = None,
    width: int = 80,
    colour: bool = True,
    thinking: bool = False,
    picture: PictureMode = "path",
) -> KeptTranscript:
    """What these look like. Deltas are passed on as they are, events as entries."""
    transcript = KeptTranscript(width, colour=colour)
    renderer = EventRenderer(transcript, (shelf or Shelf()).get, picture=picture)
    renderer.thinking = thinking
    await tell(renderer, items)
    return transcript


async def tell(renderer: EventRenderer, items: Iterable[Event | Delta]) -> None:
    from pinfold.events import OutputDelta, TextDelta

    for item in items:
        await renderer.render(item if isinstance(item, TextDelta | OutputDelta) else entry(item))
