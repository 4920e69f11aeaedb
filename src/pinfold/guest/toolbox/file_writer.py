"""Writes and edits files, each completely or not at all, keeping a file's encoding, line ends and mode."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from difflib import SequenceMatcher, unified_diff
from typing import Any

from .program_io import Refused, display_path, format_size
from .texts import LOOK, Text, decode_text, describe_missing, kind_of, read, resolve_file, resolve_path

LINES = 3000
"""The most differing lines of a text that are compared one by one."""
CONTEXT = 3
SHOWN = 20_000
"""The most characters of a diff in a result."""
WHOLE = 1 << 20
"""The most characters of a diff that the user has to approve; the host refuses a longer one."""
NEAR_LINES = 20_000
"""The most lines of a file that are searched for one similar to a missing text."""
PLACES = 20
COMPARED = 4 << 20
"""The most bytes of a file that is compared with its new content."""


def write(path: str, content: str, create_dirs: bool, dry: bool) -> dict[str, Any]:
    full = resolve_path(path)
    try:
        data = content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refused(f"content holds half a surrogate pair at character {error.start}; leave it out") from error
    was = _before(path, full)
    folder = os.path.dirname(full)
    if not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise Refused(f"{display_path(folder)} is a file, not a folder")
        if not create_dirs:
            raise Refused(f"{describe_missing(folder)}; create_dirs=true makes it")
        if not dry:
            os.makedirs(folder, exist_ok=True)
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    made = f"{display_path(full)}: {format_size(len(data))}, {lines:,} line{'s' * (lines != 1)}"
    most = WHOLE if dry else SHOWN
    if was is None:
        shows = diff("", content, "/dev/null", display_path(full), most)
    elif was == data:
        return {"text": f"{made}; it was the same already", "diff": ""}
    else:
        shows = _describe_change(was, content, full, most)
        if dry and shows.startswith("["):
            shows += f"\n{diff('', content, '/dev/null', display_path(full), most)}"
    if not dry:
        put(full, data)
    return {"text": f"wrote {made}" + (f"\n{shows}" if was is not None and shows else ""), "diff": shows}


def _before(path: str, full: str) -> bytes | None:
    """Return the file's present content, as much as is compared; None if there is no file."""
    try:
        mode = os.stat(full).st_mode
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise Refused(f"{display_path(os.path.dirname(full))} is a file, not a folder") from None
    if stat.S_ISDIR(mode):
        raise Refused(f"{display_path(path)} is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise Refused(f"{display_path(path)} is not a regular file")
    with suppress(PermissionError), open(full, "rb") as file:  # not readable, but perhaps writable
        return file.read(COMPARED + 1)
    return b""


def _describe_change(was: bytes, content: str, full: str, most: int) -> str:
    kind = kind_of(full, was[:LOOK])
    if kind or len(was) > COMPARED:
        return f"[it was {kind or 'a text'} of {format_size(os.stat(full).st_size)}]"
    return diff(decode_text(was).text, content, display_path(full), display_path(full), most)


def put(full: str, data: bytes, mode: int | None = None) -> None:
    """Write a file, all or nothing: to a temporary file that then replaces it. Owner and mode stay."""
    try:
        was = os.stat(full)
    except FileNotFoundError:
        was = None
    if was is not None:
        # The folder may allow replacing a file that is not writable.
        os.close(os.open(full, os.O_WRONLY))
    if was is not None and was.st_nlink > 1:
        _overwrite(full, data)  # the file has other hard links, which must see the change
    else:
        _replace(full, data, was)
    if mode is not None:
        os.chmod(full, mode)


def _replace(full: str, data: bytes, was: os.stat_result | None) -> None:
    beside = os.path.join(os.path.dirname(full), f".{os.path.basename(full)[:100]}.{os.urandom(6).hex()}")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if was is None:
            raise OSError(error.errno, error.strerror, full) from error
        _overwrite(full, data)  # the folder takes no new files, but the file may be writable
        return
    try:
        with open(fd, "wb") as file:
            if was is not None:
                with suppress(OSError):  # only root may change the owner
                    os.fchown(fd, was.st_uid, was.st_gid)
                os.fchmod(fd, stat.S_IMODE(was.st_mode))
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(beside, full)
    except OSError as error:
        os.unlink(beside)
        if error.errno != errno.EBUSY or was is None:
            raise OSError(error.errno, error.strerror, full) from error
        _overwrite(full, data)  # something is mounted there


def _overwrite(full: str, data: bytes) -> None:
    with open(os.open(full, os.O_WRONLY), "wb") as file:
        file.write(data)
        file.truncate()


def edit(path: str, old: str, new: str, expected_matches: int, dry: bool) -> dict[str, Any]:
    if not old:
        raise Refused("old is empty: give the text to replace, or write the whole file with write_file")
    if old == new:
        raise Refused("old and new are the same")
    full = resolve_file(path)
    was = read(path, full)
    # read_file does not show how the file ends its lines.
    if was.crlf or (old not in was.text and _crlf(old) in was.text):
        old, new = _crlf(old), _crlf(new)
    count = _count(was.text, old)
    if count == 0:
        raise Refused(_no_match(path, was.text, old))
    if count != expected_matches:
        places = ", ".join(str(line) for line in _places(was.text, old))
        more = f" and {count - PLACES} more" if count > PLACES else ""
        raise Refused(
            f"old is {count:,} times in {display_path(path)}, not {expected_matches:,}: at line{'s' * (count > 1)} {places}{more}; "
            f"give more of the text around it, or expected_matches={count} to change all"
        )
    now = Text(was.text.replace(old, new), was.encoding, was.mark)
    data = now.data(path)
    shows = diff(was.text, now.text, display_path(full), display_path(full), WHOLE if dry else SHOWN)
    if not dry:
        put(full, data)
    return {"text": shows, "diff": shows}


def _count(text: str, old: str) -> int:
    """Count the matches. Two that overlap count as two, because it is unclear which is meant."""
    count = text.count(old)
    return 2 if count == 1 and text.find(old, text.find(old) + 1) >= 0 else count


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _places(text: str, old: str) -> list[int]:
    """Return the lines where `old` begins."""
    places: list[int] = []
    at = text.find(old)
    while at >= 0 and len(places) < PLACES:
        places.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + 1)
    return places


def _no_match(path: str, text: str, old: str) -> str:
    words = f"old is not in {display_path(path)}"
    found = find_similar_lines(text, old)
    if found is None:
        return f"{words}, nor anything like it; read_file shows what is"
    first, near = found
    wanted = old.rstrip("\r\n").split("\n")
    spaces = [" ".join(line.split()) for line in near] == [" ".join(line.split()) for line in wanted]
    show = visible if spaces else str
    last = first + len(near) - 1
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    why = "which differs in white space only (· is a space, → a tab, ␍ a carriage return)" if spaces else "is"
    lines = [f"{words}; the nearest is {where}, {why}:" if spaces else f"{words}; the nearest {why} {where}:"]
    lines += (f"{number}: {show(line)[:300]}" for number, line in enumerate(near[:12], first))
    if spaces:
        lines.append("and old is:")
        lines += (show(line)[:300] for line in wanted[:12])
    return "\n".join(lines)


def visible(line: str) -> str:
    return line.replace(" ", "·").replace("\t", "→").replace("\r", "␍")


def find_similar_lines(text: str, old: str) -> tuple[int, list[str]] | None:
    """Return the lines most like `old`, as many as it has, with the number of the first."""
    wanted = old.rstrip("\r\n").split("\n")
    lines = [line.rstrip("\n") for line in lines_of(text)[:NEAR_LINES]]
    key = max(range(min(len(wanted), 40)), key=lambda number: len(wanted[number].strip()))
    asked = " ".join(wanted[key].split())[:500]
    matcher = SequenceMatcher(None, "", asked, autojunk=False)
    best, place = 0.5, -1
    for number, line in enumerate(lines):
        matcher.set_seq1(" ".join(line.split())[:500])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, place = matcher.ratio(), number
    if place < 0:
        return None
    first = max(0, place - key)
    return first + 1, lines[first : first + len(wanted)]


def diff(before: str, after: str, old: str, new: str, most: int = SHOWN) -> str:
    """Return a unified diff; empty if the texts are equal. A missing final newline is marked as git does."""
    a, b = lines_of(before), lines_of(after)
    removed, added = _differing(a, b)
    if max(removed, added) > LINES:
        lines = [f"--- {old}\n+++ {new}\n", f"[{removed:,} lines replaced by {added:,}: too many to compare]\n"]
    else:
        lines = list(unified_diff(a, b, old, new, n=CONTEXT))
    text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most:,} more characters of this diff]\n"


def count_changes(before: str, after: str) -> tuple[int, int]:
    """Count the lines added and removed; of texts too different to compare, all lines that differ."""
    a, b = lines_of(before), lines_of(after)
    removed, added = _differing(a, b)
    if max(removed, added) <= LINES:
        lines = list(unified_diff(a, b, n=0))[2:]
        removed, added = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    return added, removed


def lines_of(text: str) -> list[str]:
    """Split a text into lines with their ends; only a newline ends a line."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _differing(a: list[str], b: list[str]) -> tuple[int, int]:
    """Count the lines of each text between the equal lines at the beginning and at the end."""
    most = min(len(a), len(b))
    head = next((number for number in range(most) if a[number] != b[number]), most)
    rest = most - head
    same = head + next((number for number in range(rest) if a[-1 - number] != b[-1 - number]), rest)
    return len(a) - same, len(b) - same


OPERATIONS = {"write": write, "edit": edit}
