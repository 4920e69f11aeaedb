"""Reads files as text with their encoding and line ends, so that unchanged parts are written back byte for byte."""

from __future__ import annotations

import codecs
import os
import stat
from contextlib import suppress
from difflib import get_close_matches
from typing import NamedTuple

from .program_io import Refused, display_path, format_size

LOOK = 1 << 16
"""Bytes of a file by which its encoding is detected."""
EDITABLE = 64 << 20
"""The most bytes of a file that is edited as text."""
NEAR = 4000
"""The most names that are searched for one like a missing name."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_KINDS = (
    (b"%PDF-", "a PDF"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"BZh", "bzip2-compressed"),
    (b"\xfd7zXZ\x00", "xz-compressed"),
    (b"(\xb5/\xfd", "zstd-compressed"),
    (b"7z\xbc\xaf'\x1c", "a 7z archive"),
    (b"\x7fELF", "an ELF program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"PAR1", "a Parquet table"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
)
_TABLES = ("a Parquet table", "an Excel workbook")
_ZIPPED = {".xlsx": "an Excel workbook", ".docx": "a Word document", ".pptx": "a PowerPoint file", ".whl": "a wheel"}


class Text(NamedTuple):
    """The text of a file, with the encoding and byte order mark needed to write it back."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def crlf(self) -> bool:
        """True if every line ends in CRLF."""
        count = self.text.count("\n")
        return count > 0 and count == self.text.count("\r\n")

    def data(self, path: str) -> bytes:
        try:
            return self.mark + self.text.encode(self.encoding)
        except UnicodeEncodeError as error:
            letter = error.object[error.start]
            raise Refused(
                f"{display_path(path)} is {self.encoding} and cannot hold {letter!r} (U+{ord(letter):04X}); "
                "write it without, or the whole file anew in UTF-8 with write_file"
            ) from error


def resolve_path(path: str) -> str:
    """Return an absolute path with links resolved, so that the file written is the file that would be read."""
    if "\0" in path:
        raise Refused("a path cannot hold a NUL")
    return os.path.realpath(os.path.expanduser(path))


def resolve_file(path: str) -> str:
    """Resolve the path of a regular file. Raises Refused if there is none."""
    full = resolve_path(path)
    try:
        mode = os.stat(full).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(describe_missing(path)) from None
    if stat.S_ISDIR(mode):
        raise Refused(f"{display_path(path)} is a folder; list_files shows what is in it")
    if not stat.S_ISREG(mode):
        raise Refused(f"{display_path(path)} is not a regular file")
    return full


def describe_missing(path: str) -> str:
    words = f"there is no {display_path(path)}"
    near = nearest(path)
    return f"{words}; did you mean {near}?" if near else words


def nearest(path: str) -> str:
    """Return the existing path most like a missing one; the first if several have the same name."""
    full = resolve_path(path)
    folder, name = os.path.split(full)
    lost = [name]
    while not os.path.isdir(folder):
        folder, part = os.path.split(folder)
        lost.append(part)
    beside: list[str] = []
    with suppress(OSError):
        beside = sorted(os.listdir(folder))[:NEAR]
    wanted = lost[-1]
    close = get_close_matches(wanted, beside, n=1, cutoff=0.6) or [
        one for one in beside if one.lower() == wanted.lower()
    ]
    if close:
        candidate = os.path.join(folder, close[0], *reversed(lost[:-1]))
        if os.path.exists(candidate):
            return display_path(candidate)
    for found in _below(os.getcwd()):
        if os.path.basename(found) == name:
            return display_path(found)
    return display_path(os.path.join(folder, close[0])) if close else ""


def _below(top: str) -> list[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        found += (os.path.join(folder, name) for name in sorted(files))
        if len(found) > NEAR:
            break
    return found


SKIPPED = frozenset((".git", "node_modules", "__pycache__", ".venv"))
"""Folders of generated or downloaded files."""


def kind_of(path: str, head: bytes) -> str:
    """Return what kind of binary file this is; empty for a text."""
    for mark, kind in _KINDS:
        if head.startswith(mark):
            return _ZIPPED.get(os.path.splitext(path)[1].lower(), kind) if kind == "a zip archive" else kind
    return "binary" if encoding_of(head)[0] == "" else ""


def refuse_binary(path: str, head: bytes, size: int) -> None:
    kind = kind_of(path, head)
    if kind:
        way = "data_view shows it" if kind in _TABLES else "use python to work with it"
        raise Refused(f"{display_path(path)} is {kind} ({format_size(size)}), not text; {way}")


def encoding_of(head: bytes) -> tuple[str, bytes]:
    """Return the encoding of a text and its byte order mark. The encoding is empty if it is no text."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, mark
    if b"\0" in head:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        for encoding, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
            if zeros * 4 > len(head) and others == 0 and _reads(head[: len(head) & ~1], encoding):
                return encoding, b""
        return "", b""
    if _reads(head, "utf-8"):
        return "utf-8", b""
    return ("cp1252" if _reads(head, "cp1252") else "latin-1"), b""


def _reads(head: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def read(path: str, full: str) -> Text:
    """Read a whole file as text that can be written back."""
    size = os.stat(full).st_size
    if size > EDITABLE:
        raise Refused(
            f"{display_path(path)} has {format_size(size)}, more than is changed as a text; use python for it"
        )
    with open(full, "rb") as file:
        data = file.read(EDITABLE + 1)
    refuse_binary(path, data[:LOOK], size)
    return decode_text(data)


def decode_text(data: bytes) -> Text:
    encoding, mark = encoding_of(data)
    body = data[len(mark) :]
    for attempt in (encoding, "cp1252", "latin-1"):
        try:
            text = body.decode(attempt)
        except UnicodeDecodeError:
            continue
        if text.encode(attempt) == body:
            return Text(text, attempt, mark)
    raise AssertionError  # every byte is a letter in latin-1
