"""Applies a patch: every hunk of every file, or nothing at all."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from .file_writer import SHOWN, WHOLE, count_changes, diff, find_similar_lines, lines_of, put
from .patches import Hunk, parse_patch
from .program_io import Refused, display_path
from .texts import Text, read, resolve_file, resolve_path

if TYPE_CHECKING:
    from .patches import Change

PLACES = 10


class Folder:
    """Files as they would be after the patch, by full path; None for a removed one."""

    def __init__(self) -> None:
        self.now: dict[str, Text | None] = {}
        self.before: dict[str, Text | None] = {}
        self.modes: dict[str, int] = {}

    def get(self, path: str) -> Text:
        full = resolve_path(path)
        if full not in self.now:
            self.before[full] = self.now[full] = read(path, resolve_file(path))
        text = self.now[full]
        if text is None:
            raise Refused(f"the patch removes {display_path(path)} before it changes it")
        return text

    def set(self, path: str, text: Text | None) -> None:
        full = resolve_path(path)
        if full not in self.now:
            self.before[full] = read(path, full) if os.path.isfile(full) else None
            if os.path.isdir(full):
                raise Refused(f"{display_path(path)} is a folder")
        self.now[full] = text

    def has(self, path: str) -> bool:
        full = resolve_path(path)
        return self.now[full] is not None if full in self.now else os.path.lexists(full)


def apply(patch: str, dry: bool) -> dict[str, Any]:
    folder = Folder()
    summary = [_apply_change(folder, change) for change in parse_patch(patch)]
    shows = ""
    for full, before in folder.before.items():
        texts = [before, folder.now[full]]
        old, new = ("/dev/null" if text is None else display_path(full) for text in texts)
        was, now = ("" if text is None else text.text for text in texts)
        shows += diff(was, now, old, new, WHOLE if dry else SHOWN)
    if not dry:
        _write_all(folder)
    return {"text": "\n".join(summary), "diff": shows}


def _apply_change(folder: Folder, change: Change) -> str:
    if change.kind == "add":
        if folder.has(change.path):
            raise Refused(f"the patch adds {display_path(change.path)}, which is there already; update it instead")
        made = "".join(line for hunk in change.hunks for line in hunk.new)
        folder.set(change.path, Text(made))
        _set_mode(folder, change)
        return f"added {display_path(change.path)} ({len(lines_of(made)):,} lines)"
    was = folder.get(change.path)
    now = apply_hunks(change.path, was, change.hunks)
    if change.kind == "delete":
        if now.text and change.hunks:
            raise Refused(
                f"the patch deletes {display_path(change.path)}, but not all that is in it: nothing was changed"
            )
        folder.set(change.path, None)
        return f"deleted {display_path(change.path)}"
    if change.to != change.path:
        if folder.has(change.to):
            raise Refused(
                f"the patch moves {display_path(change.path)} to {display_path(change.to)}, which is there already"
            )
        if not change.copy:
            folder.set(change.path, None)
        full = resolve_path(change.path)
        _set_mode(folder, change, os.stat(full).st_mode if os.path.isfile(full) else None)
    folder.set(change.to, now)
    if change.to == change.path:
        _set_mode(folder, change)
    added, removed = count_changes(was.text, now.text)
    name = display_path(change.path)
    if change.to != change.path:
        name += f" -> {display_path(change.to)}"
    return f"{'copied' if change.copy else 'changed'} {name} (+{added:,} -{removed:,})"


def _set_mode(folder: Folder, change: Change, was: int | None = None) -> None:
    mode = change.mode if change.mode is not None else was
    if mode is not None:
        folder.modes[resolve_path(change.to)] = stat.S_IMODE(mode)


def apply_hunks(path: str, was: Text, hunks: list[Hunk]) -> Text:
    lines, offset, begin = lines_of(was.text), 0, 0
    for hunk in hunks:
        # The model sees no carriage returns, so it writes none; a patch that has some is taken literally.
        crlf = was.crlf and not any(line.endswith("\r\n") for _, line in hunk.lines)
        place = _Place(path, lines, hunk, begin, offset)
        at, count = place.at, len(hunk.old)
        kept = iter(lines[at : at + count])
        made: list[str] = []
        for tag, line in hunk.lines:
            if tag == "+":
                made.append(f"{line[:-1]}\r\n" if crlf and line.endswith("\n") else line)
            else:
                own = next(kept)
                if tag == " ":
                    made.append(own)  # the file's own line: the patch may differ in white space
        _join(lines, made, at, count)
        lines[at : at + count] = made
        begin = at + len(made)
        if hunk.start is not None:
            offset = begin - count - _header_line(hunk)
    return Text("".join(lines), was.encoding, was.mark)


def _join(lines: list[str], made: list[str], at: int, count: int) -> None:
    """Add a newline to a line without one if another line now follows it."""
    if at > 0 and made and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    for number, line in enumerate(made[:-1]):
        if not line.endswith("\n"):
            made[number] = f"{line}\n"
    if made and at + count < len(lines) and not made[-1].endswith("\n"):
        made[-1] += "\n"


class _Place:
    """Finds where a hunk belongs. Raises Refused if that is nowhere, or in more than one place."""

    def __init__(self, path: str, lines: list[str], hunk: Hunk, begin: int, offset: int) -> None:
        self._path = path
        self._lines = lines
        self._hunk = hunk
        self._begin = self._behind_anchors(begin)
        self._said = None if hunk.start is None else _header_line(hunk) + offset
        self.at = self._find_line()

    def _behind_anchors(self, begin: int) -> int:
        for anchor in self._hunk.anchors:
            places = [at for at in range(begin, len(self._lines)) if anchor in self._lines[at]]
            if not places:
                raise self._make_refusal(f"no line {anchor!r} is in the file")
            at = next((at for at in places if self._lines[at].strip() == anchor.strip()), places[0])
            # The anchor may itself be the first line of the hunk.
            old = self._hunk.old
            begin = at if old and old[0].strip() == self._lines[at].strip() else at + 1
        return begin

    def _find_line(self) -> int:
        old = self._hunk.old
        if not old:
            if self._said is not None:
                return min(max(self._said, self._begin), len(self._lines))
            return self._begin if self._hunk.anchors else len(self._lines)
        for same in (_without_end, str.rstrip):
            wanted = [same(line) for line in old]
            has = [same(line) for line in self._lines]
            if self._said is not None and self._begin <= self._said and _is_at(has, wanted, self._said):
                return self._said
            places = self._places(has, wanted)
            if len(places) == 1 or (places and self._hunk.anchors):
                return places[0]
            if places:
                where = ", ".join(str(place + 1) for place in places[:PLACES])
                raise self._make_refusal(
                    f"its lines are in {len(places)} places (lines {where}); give more lines around it"
                )
        raise self._make_refusal(self._describe_mismatch(old))

    def _places(self, has: list[str], wanted: list[str]) -> list[int]:
        if self._hunk.at_end:
            last = len(has) - len(wanted)
            return [last] if last >= self._begin and _is_at(has, wanted, last) else []
        places: list[int] = []
        at = self._begin - 1
        while len(places) <= PLACES:
            try:
                at = has.index(wanted[0], at + 1)
            except ValueError:
                break
            if _is_at(has, wanted, at):
                places.append(at)
        return places

    def _describe_mismatch(self, old: list[str]) -> str:
        text = "".join(self._lines)
        found = find_similar_lines(text, "".join(old))
        if found is None:
            return "nothing in the file is like its lines"
        first, near = found
        pairs = list(zip((line.rstrip("\n") for line in old), near, strict=False))
        wrong = next((number for number, (a, b) in enumerate(pairs) if a.rstrip() != b.rstrip()), 0)
        wants, has = (repr(line)[:200] for line in pairs[wrong]) if pairs else ("", "")
        return f"the nearest place is line {first}; there line {first + wrong} is {has}, and the patch has {wants}"

    def _make_refusal(self, why: str) -> Refused:
        return Refused(
            f"hunk {self._hunk.number} of {display_path(self._path)} does not fit: {why}. Nothing was changed"
        )


def _header_line(hunk: Hunk) -> int:
    """Return the place that the header names, counted from 0. A hunk that only adds goes after that line."""
    assert hunk.start is not None
    return hunk.start - bool(hunk.old)


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _is_at(has: list[str], wanted: list[str], at: int) -> bool:
    return at >= 0 and has[at : at + len(wanted)] == wanted


def _write_all(folder: Folder) -> None:
    """Write all files; if one cannot be written, restore the others."""
    changed = [full for full, now in folder.now.items() if now != folder.before[full]]
    datas = {full: text.data(full) for full in changed if (text := folder.now[full]) is not None}
    done: list[str] = []
    made: list[str] = []
    modes: dict[str, int] = {}
    try:
        for full in changed:
            if os.path.isfile(full):
                modes[full] = stat.S_IMODE(os.stat(full).st_mode)
            if full in datas:
                made += _folders(os.path.dirname(full))
                put(full, datas[full], folder.modes.get(full))
            else:
                os.unlink(full)
            done.append(full)
        for full in folder.modes.keys() - datas.keys():
            os.chmod(full, folder.modes[full])
    except OSError as error:
        for full in reversed(done):
            before = folder.before[full]
            if before is None:
                os.unlink(full)
            else:
                put(full, before.data(full), modes[full])
        for one in reversed(made):
            os.rmdir(one)
        name = error.filename if isinstance(error.filename, str) else changed[len(done)]
        raise OSError(error.errno, f"{error.strerror}; nothing was changed", name) from error


def _folders(folder: str) -> list[str]:
    """Make the missing folders and return them, the outermost first."""
    lacking: list[str] = []
    while not os.path.isdir(folder):
        lacking.append(folder)
        folder = os.path.dirname(folder)
    lacking.reverse()
    for one in lacking:
        os.mkdir(one)
    return lacking


OPERATIONS = {"apply": apply}
