"""Shows files and folders. Changes nothing; uses bounded memory for a file of any size."""

from __future__ import annotations

import io
import os
import stat
import time
from typing import Any, BinaryIO

from .program_io import Refused, display_path, format_size
from .texts import EDITABLE, LOOK, decode_text, describe_missing, encoding_of, refuse_binary, resolve_file, resolve_path

BLOCK = 1 << 20
COUNTING_S = 1.5
"""Time for counting the lines that are not shown."""
ENTRIES = 20_000


def read(path: str, start_line: int, max_lines: int | None, most: int) -> dict[str, Any]:
    """Return some lines of a file, in at most `most` bytes, and a note in brackets about the rest."""
    full = resolve_file(path)
    size = os.stat(full).st_size
    with open(full, "rb") as file:
        head = file.read(LOOK)
        refuse_binary(path, head, size)
        encoding, mark = encoding_of(head)
        notes: list[str] = []
        source: BinaryIO = file
        if encoding.startswith(("utf-16", "utf-32")):
            if size > EDITABLE:
                words = f"{display_path(path)} is UTF-16 or UTF-32 and has {format_size(size)}"
                raise Refused(f"{words}; use python to read it")
            source = io.BytesIO(decode_text(head + file.read(EDITABLE)).text.encode("utf-8", "replace"))
            notes.append(f"the file is {encoding}")
            encoding, mark = "utf-8", b""
        page = Page(source, len(mark), start_line, max_lines, most)
    return {"text": _format_page(path, page, encoding, notes)}


class Page:
    """Some lines of a file, and the number of all its lines."""

    def __init__(self, file: BinaryIO, offset: int, first: int, lines: int | None, most: int) -> None:
        self.first = first
        self.lines: list[bytes] = []
        self.cut = False
        """True if the last line is not whole."""
        self.counted = False
        """True if `total` counts the whole file."""
        self.until = time.monotonic() + COUNTING_S
        self._before = 0
        self._ended = True
        file.seek(offset)
        if self._is_at_first(file):
            self._take(file, lines, most)
        self.total = self._before + len(self.lines) + self._rest(file)

    def _is_at_first(self, file: BinaryIO) -> bool:
        """Seek to the first wanted line; return whether there is one."""
        while self._before + 1 < self.first:
            block = file.read(BLOCK)
            if not block:
                self._before += not self._ended
                return False
            self._ended = block.endswith(b"\n")
            ends = block.count(b"\n")
            if self._before + ends + 1 < self.first:
                self._before += ends
                continue
            at = 0
            while self._before + 1 < self.first:
                at = block.index(b"\n", at) + 1
                self._before += 1
            file.seek(at - len(block), os.SEEK_CUR)
        return True

    def _take(self, file: BinaryIO, lines: int | None, most: int) -> None:
        room = most
        while lines is None or len(self.lines) < lines:
            line = file.readline(room + 1)
            if not line:
                break
            if len(line) > room:
                if self.lines:
                    file.seek(-len(line), os.SEEK_CUR)
                else:
                    file.seek(room - len(line), os.SEEK_CUR)
                    self.lines.append(line[:room])
                    self.cut = True
                break
            self.lines.append(line)
            room -= len(line)

    def _rest(self, file: BinaryIO) -> int:
        """Count the lines after those that were taken, as far as there is time."""
        count, ended = 0, not self.cut
        while time.monotonic() < self.until:
            block = file.read(BLOCK)
            if not block:
                self.counted = True
                # The rest of a cut line is not another line.
                return count + (not ended) - self.cut
            count += block.count(b"\n")
            ended = block.endswith(b"\n")
        return max(0, count - self.cut)


def _format_page(path: str, page: Page, encoding: str, notes: list[str]) -> str:
    data = b"".join(page.lines)
    if encoding == "utf-8":
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "ignore" if page.cut else "replace")
            if not page.cut:
                notes.append("bytes that are not UTF-8 are shown as \ufffd")
    else:
        text = data.decode(encoding, "replace")
        notes.append(f"the file is not UTF-8 and was read as {encoding}")
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
        notes.append("lines end in CRLF")
    last = page.first + len(page.lines) - 1
    total = f"{page.total:,}" if page.counted else f"more than {page.total:,}"
    if not page.lines:
        if page.total == 0:
            return f"[{display_path(path)} is empty]"
        raise Refused(f"{display_path(path)} has {total} lines; start_line={page.first} is past the end")
    if page.cut:
        more = f"; start_line={last + 1} goes on behind it" if last < page.total or not page.counted else ""
        notes.insert(0, f"line {last:,} of {total} is longer than this and was cut; python can read all of it{more}")
    elif page.first > 1 or last < page.total or not page.counted:
        more = f"; go on with start_line={last + 1}" if last < page.total or not page.counted else ""
        notes.insert(0, f"lines {page.first:,} to {last:,} of {total}{more}")
    if not notes:
        return text
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}[{'; '.join(notes)}]"


def entries(path: str) -> dict[str, Any]:
    """List a folder: folders first, then by name."""
    full = resolve_path(path)
    if not os.path.lexists(full):
        raise Refused(describe_missing(path))
    if not os.path.isdir(full):
        raise Refused(f"{display_path(path)} is a file; read_file shows it")
    found: list[dict[str, Any]] = []
    more = 0
    with os.scandir(full) as scan:
        for entry in scan:
            if len(found) < ENTRIES:
                found.append(_entry(entry))
            else:
                more += 1
    found.sort(key=lambda one: (one["type"] != "directory", one["name"]))
    return {"entries": found, "more": more}


def _entry(entry: os.DirEntry[str]) -> dict[str, Any]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return {"name": entry.name, "type": "other", "size": 0}
    kinds = {stat.S_IFLNK: "link", stat.S_IFDIR: "directory", stat.S_IFREG: "file"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return {"name": entry.name, "type": kind, "size": status.st_size if kind == "file" else 0}


OPERATIONS = {"read": read, "entries": entries}
