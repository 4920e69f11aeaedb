"""Track whether a session's code could have read private data, and sum what left this machine by destination."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from pinfold.events import ActionFinished, Entry, ModelCalled, ModelReplied

MOST = 20_000
"""Maximum files and folders whose origin is tracked; if there are more, they all count as the user's."""


class Privacy:
    """Tracks private data: everything in the workspace that the session itself did not create. `holds` never resets.

    The session cannot hide files of the user: every change of a file changes its ctime, which no program can set.
    """

    def __init__(self, workspace: Path, *, more: bool) -> None:
        """`more`: True if data or other folders are mounted."""
        self._workspace = workspace
        self._known: frozenset[tuple[int, int]] = frozenset()
        """Inode and ctime of what the session created itself."""
        self.holds = more
        self.is_exposed = False
        """True once code or a tool ran that could have read private data."""

    def check_workspace(self) -> None:
        """Look for private data. Call before the session changes files."""
        if not self.holds:
            try:
                self.holds = any(one not in self._known for one in self._things())
            except OSError:  # unknown, so assume the worst
                self.holds = True

    def about_to_read(self) -> bool:
        """Note that code is about to read. Return True if this is the first time there is private data to read."""
        self.check_workspace()
        was, self.is_exposed = self.is_exposed, self.is_exposed or self.holds
        return self.is_exposed and not was

    def mark_exposed(self) -> bool:
        """Note that private data outside the workspace is read. Return True the first time."""
        self.holds = True
        return self.about_to_read()

    def note_own_files(self) -> None:
        if not self.holds:
            try:
                self._known = frozenset(itertools.islice(self._things(), MOST + 1))
                self.holds = len(self._known) > MOST
            except OSError:  # unknown, so assume the worst
                self.holds = True

    def _things(self) -> Iterator[tuple[int, int]]:
        """Yield the identity of each entry. A folder's has no ctime, which changes as files in it come and go."""
        folders = [os.fspath(self._workspace)]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    about = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder:
                        folders.append(entry.path)
                    yield about.st_ino, 0 if is_folder else about.st_ctime_ns


class OutboundTotal(Struct, kw_only=True):
    to: str
    """`host:port`, or the provider of a model."""
    times: int = 0
    bytes_out: int = 0
    """For a model: size of the conversation before it is encoded for the provider."""
    bytes_back: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def sum_outbound(entries: Iterable[Entry]) -> list[OutboundTotal]:
    """Sum by destination, most bytes first, without what runs on this machine."""
    found: dict[str, OutboundTotal] = {}
    called: dict[str, ModelCalled] = {}
    """The last call of each turn. Only its reply says whether the answer came from the cache."""

    def to(name: str) -> OutboundTotal:
        return found.setdefault(name, OutboundTotal(to=name))

    for event in (entry.event for entry in entries):
        match event:
            case ModelCalled() if event.to:
                called[event.turn] = event
                to(event.to).times += 1
                to(event.to).bytes_out += event.size
            case ModelReplied() if event.turn in called:
                call = called.pop(event.turn)
                one = to(call.to)
                if event.from_cache:
                    one.times -= 1
                    one.bytes_out -= call.size
                    continue
                one.bytes_back += len(event.text.encode("utf-8", "surrogatepass"))
                one.input_tokens += event.usage.input_tokens
                one.output_tokens += event.usage.output_tokens
            case ActionFinished(sent=sent):
                for part in sent:
                    to(part.to).times += 1
                    to(part.to).bytes_out += part.out
                    to(part.to).bytes_back += part.back
            case _:
                pass
    return sorted((one for one in found.values() if one.times), key=lambda one: -one.bytes_out)
