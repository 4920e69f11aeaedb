"""Whether a session's code could have read anything of the user's own, and what left this machine, by destination."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from pinfold.events import ActionFinished, Entry, ModelCalled, ModelReplied

MOST = 20_000
"""Files and folders that are told apart; where there are more, they count as the user's."""


class Privacy:
    """What is in the workspace and was not left there by the session itself is the user's. Once there was any, there is.

    The session cannot hide what the user puts in: every change of a file changes its ctime, which no program can set.
    """

    def __init__(self, workspace: Path, *, more: bool) -> None:
        """`more`: data or other folders are mounted."""
        self._workspace = workspace
        self._known: frozenset[tuple[int, int]] = frozenset()
        """What is there by the session's own doing."""
        self.holds = more
        self.is_exposed = False
        """Code or a tool has run, or runs, that could have read it."""

    def check_workspace(self) -> None:
        """Before something changes that is not the user's doing."""
        if not self.holds:
            try:
                self.holds = any(one not in self._known for one in self._things())
            except OSError:  # it cannot be told
                self.holds = True

    def about_to_read(self) -> bool:
        """Whether this is the first time that there is something."""
        self.check_workspace()
        was, self.is_exposed = self.is_exposed, self.is_exposed or self.holds
        return self.is_exposed and not was

    def mark_exposed(self) -> bool:
        """Something of the user's own is read that is not in the workspace; whether that is the first time."""
        self.holds = True
        return self.about_to_read()

    def note_own_files(self) -> None:
        if not self.holds:
            try:
                self._known = frozenset(itertools.islice(self._things(), MOST + 1))
                self.holds = len(self._known) > MOST
            except OSError:  # it cannot be told
                self.holds = True

    def _things(self) -> Iterator[tuple[int, int]]:
        """A folder is the same one when files in it come and go."""
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
    """To a model: of the conversation as it was given, before its provider's format."""
    bytes_back: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def sum_outbound(entries: Iterable[Entry]) -> list[OutboundTotal]:
    """Most bytes first. What runs on this machine is not among them."""
    found: dict[str, OutboundTotal] = {}
    called: dict[str, ModelCalled] = {}
    """The last call of a turn: only its reply says whether it was answered from the cache."""

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
