"""Reads patches: unified diffs as `diff -u` and git write them, and the `*** Begin Patch` form. Touches no file."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from .program_io import Refused

Kind: TypeAlias = Literal["add", "update", "delete"]

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)", re.DOTALL)
_ESCAPE = re.compile(r'\\([0-7]{3}|[abtnvfr"\\])')
_LETTERS = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")


class Hunk:
    """Lines with their ends, each tagged as kept (space), removed (-) or added (+)."""

    def __init__(self, number: int, start: int | None = None, anchors: tuple[str, ...] = ()) -> None:
        self.number = number
        self.start = start
        """The line that the header names, counted from 1."""
        self.anchors = anchors
        """Lines that come somewhere before the hunk."""
        self.lines: list[tuple[str, str]] = []
        self.at_end = False

    @property
    def old(self) -> list[str]:
        return [line for tag, line in self.lines if tag != "+"]

    @property
    def new(self) -> list[str]:
        return [line for tag, line in self.lines if tag != "-"]


class Change:
    """What a patch does to one file."""

    def __init__(self, kind: Kind, path: str) -> None:
        self.kind: Kind = kind
        self.path = path
        self.to = path
        self.mode: int | None = None
        self.copy = False
        self.hunks: list[Hunk] = []


def parse_patch(patch: str) -> list[Change]:
    lines = patch.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```":
        lines = lines[1:-1]  # a fence of Markdown around it all
    begin = next((number for number, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None)
    if begin is not None or any(_FILE.match(line) for line in lines):
        changes = _BeginPatch(lines[begin + 1 :] if begin is not None else lines).changes
    else:
        changes = _UnifiedDiff(lines).changes
    if not changes:
        raise Refused(
            "this is not a patch; give a unified diff (--- a/FILE, +++ b/FILE, @@ -1,2 +1,2 @@) "
            "or *** Begin Patch, *** Update File: FILE, @@, *** End Patch"
        )
    return changes


class _UnifiedDiff:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self.changes: list[Change] = []
        while self._at < len(lines):
            line = lines[self._at]
            if line.startswith("diff --git "):
                self._git()
            elif self._is_header():
                self._plain()
            elif line.startswith("@@ "):
                raise Refused(f"line {self._at + 1} of the patch: a hunk without a file; begin with --- and +++")
            else:
                self._at += 1  # text around the patch

    def _peek(self, ahead: int) -> str:
        at = self._at + ahead
        return self._lines[at] if at < len(self._lines) else ""

    def _git(self) -> None:
        names = _git_names(self._lines[self._at])
        self._at += 1
        change = Change("update", names[0])
        change.to = names[1]
        while self._at < len(self._lines):
            line = self._lines[self._at]
            word, _, rest = line.partition(" ")
            if self._is_header():
                old, new = _name(line[4:]), _name(self._peek(1)[4:])
                change.path = change.path if old == "/dev/null" else old.removeprefix("a/")
                change.to = change.to if new == "/dev/null" else new.removeprefix("b/")
                self._at += 2
                change.hunks = self._hunks(change.path)
                break
            if line.startswith("diff --git "):
                break
            if line.startswith(("GIT binary patch", "Binary files ")):
                raise Refused(f"the patch holds a binary change of {change.to}; only text can be patched")
            if word == "new" and rest.startswith("file mode "):
                change.kind, change.mode = "add", int(rest.split()[-1], 8) & 0o777
            elif word == "deleted" and rest.startswith("file mode "):
                change.kind = "delete"
            elif word == "new" and rest.startswith("mode "):
                change.mode = int(rest.split()[-1], 8) & 0o777
            elif word in ("rename", "copy") and rest.startswith("from "):
                change.path, change.copy = _name(rest[5:]), word == "copy"
            elif word in ("rename", "copy") and rest.startswith("to "):
                change.to = _name(rest[3:])
            self._at += 1
        if change.kind == "add":
            change.path = change.to
        elif change.kind == "delete":
            change.to = change.path
        self.changes.append(change)

    def _plain(self) -> None:
        old, new = _name(self._lines[self._at][4:]), _name(self._peek(1)[4:])
        self._at += 2
        if old.startswith("a/") and new.startswith("b/"):
            old, new = old[2:], new[2:]
        elif "/dev/null" in (old, new):
            old, new = old.removeprefix("a/"), new.removeprefix("b/")
        if old == "/dev/null":
            change = Change("add", new)
        elif new == "/dev/null":
            change = Change("delete", old)
        else:
            # `diff -u old new` is no rename: it changes `old`, unless that is a backup of `new`.
            change = Change("update", new if old != new and _is_backup(old, new) else old)
        change.hunks = self._hunks(change.path)
        if not change.hunks:
            raise Refused(f"the patch does not say what changes in {change.path}: no @@ line follows")
        self.changes.append(change)

    def _hunks(self, path: str) -> list[Hunk]:
        hunks: list[Hunk] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.startswith("@@"):
                if line.strip() and not line.startswith(("index ", "=")):
                    break
                self._at += 1
                continue
            found = _HEADER.match(line)
            self._at += 1
            if found:
                hunk = Hunk(len(hunks) + 1, int(found[1]))
                counts = (int(found[2] or 1), int(found[4] or 1))
            else:
                hunk, counts = Hunk(len(hunks) + 1), (-1, -1)
            self._body(hunk, *counts)
            if not hunk.lines:
                raise Refused(f"hunk {hunk.number} of {path} is empty")
            hunks.append(hunk)
        return hunks

    def _body(self, hunk: Hunk, old: int, new: int) -> None:
        """Read as many lines as the header counts; if it miscounts, as many as can only be lines of the hunk."""
        until = self._find_hunk_end(old, new)
        while self._at < len(self._lines):
            line = self._lines[self._at]
            tag = line[:1] or " "
            if tag == "\\" and hunk.lines:
                mark, text = hunk.lines[-1]
                hunk.lines[-1] = (mark, text.removesuffix("\n"))
            elif tag not in " +-" or (
                self._at >= until and (self._is_header() or not line.strip() or line.rstrip() == "--")
            ):
                break
            else:
                hunk.lines.append((tag, f"{line[1:]}\n"))
            self._at += 1

    def _find_hunk_end(self, old: int, new: int) -> int:
        """Return where the lines end that the header counts; the present line if its counts do not fit."""
        at = self._at
        while at < len(self._lines) and (old > 0 or new > 0):
            tag = self._lines[at][:1] or " "
            if tag not in " +-\\":
                return self._at
            old -= tag in " -"
            new -= tag in " +"
            at += 1
        return at if old == new == 0 else self._at

    def _is_header(self) -> bool:
        line = self._lines[self._at]
        return line.startswith("--- ") and self._peek(1).startswith("+++ ")


def _is_backup(old: str, new: str) -> bool:
    return old in (f"{new}.orig", f"{new}.bak", f"{new}~", f"{new}.old")


def _git_names(line: str) -> tuple[str, str]:
    rest = line[len("diff --git ") :]
    if rest.startswith('"'):
        end = re.match(r'"(?:[^"\\]|\\.)*"', rest)
        cut = end.end() if end else len(rest)
        return _name(rest[:cut]).removeprefix("a/"), _name(rest[cut + 1 :]).removeprefix("b/")
    # Names with spaces: unless the file is renamed, both halves differ only in their first letter.
    half = len(rest) // 2
    if rest[half : half + 1] == " " and rest[2:half] == rest[half + 3 :]:
        return rest[2:half], rest[half + 3 :]
    old, _, new = rest.partition(" b/")
    return old.removeprefix("a/"), new.removeprefix("b/")


def _name(text: str) -> str:
    text = text.rstrip("\r")
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        letters = text[1:-1].encode("utf-8", "surrogateescape").decode("latin-1")

        def letter(found: re.Match[str]) -> str:
            return chr(_LETTERS[found[1]] if found[1] in _LETTERS else int(found[1], 8) & 0xFF)

        return _ESCAPE.sub(letter, letters).encode("latin-1").decode("utf-8", "surrogateescape")
    return text.split("\t")[0].rstrip(" ")


class _BeginPatch:
    """Reads the `*** Begin Patch` form: files by name, places by the lines around them."""

    def __init__(self, lines: list[str]) -> None:
        self.changes: list[Change] = []
        self._hunk: Hunk | None = None
        self._anchors: list[str] = []
        for number, line in enumerate(lines, 1):
            if line.strip() == "*** End Patch":
                break
            if not self._directive(line) and not self._line(line) and line.strip():
                raise Refused(f"line {number} of the patch does not belong to a file: {line[:80]!r}")
        for change in self.changes:
            change.hunks = [hunk for hunk in change.hunks if hunk.lines]
            if change.kind == "update" and not change.hunks and change.to == change.path:
                raise Refused(f"the patch does not say what changes in {change.path}")

    def _directive(self, line: str) -> bool:
        found = _FILE.fullmatch(line.rstrip())
        if found:
            kinds: dict[str, Kind] = {"Add": "add", "Update": "update", "Delete": "delete"}
            self.changes.append(Change(kinds[found[1]], found[2].strip()))
            self._hunk = Hunk(1) if found[1] == "Add" else None
            if self._hunk:
                self.changes[-1].hunks.append(self._hunk)
            self._anchors = []
        elif line.startswith("*** Move to: ") and self.changes:
            self.changes[-1].to = line[len("*** Move to: ") :].strip()
        elif line.strip() == "*** End of File":
            if self._hunk:
                self._hunk.at_end = True
        elif line.startswith("@@") and self.changes and self.changes[-1].kind == "update":
            if self._hunk and self._hunk.lines:
                self._anchors = []
            words = line[2:].strip()
            if words and not _HEADER.match(line):
                self._anchors.append(words)
            self._begin()
        else:
            return False
        return True

    def _begin(self) -> None:
        hunks = self.changes[-1].hunks
        if hunks and not hunks[-1].lines:
            hunks.pop()
        self._hunk = Hunk(len(hunks) + 1, None, tuple(self._anchors))
        hunks.append(self._hunk)

    def _line(self, line: str) -> bool:
        if not self.changes or self.changes[-1].kind == "delete":
            return False
        tag = line[:1] or " "
        if tag not in " +-":
            return False
        if self._hunk is None:
            if not line.strip():
                return True
            self._begin()
        assert self._hunk is not None
        if self.changes[-1].kind == "add" and tag != "+":
            return not line.strip()
        self._hunk.lines.append((tag, f"{line[1:]}\n"))
        return True
