"""A server's listing of its tools, kept exactly, and how it differs from the one the user agreed to."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, cast

from pinfold.events import Json

VERSION = 1
TOOL_BYTES = 256_000
"""Maximum size of a tool's description and schemas; a larger tool is not offered."""
FIELDS = ("title", "description", "inputSchema", "outputSchema", "annotations")
Kind: TypeAlias = Literal["changed", "new", "gone"]
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_COMPARED = 2_000
"""Maximum lines per side for a real diff; beyond it, all lines are shown as removed and as added."""
_PIECE = 400
"""Maximum characters of a line; longer ones are wrapped, not cut, because the user agrees to all of it."""


@dataclass(frozen=True)
class Entry:
    """One tool as its server describes it."""

    name: str
    content: Mapping[str, Json]
    """The FIELDS it has; only `extra` if it is a tool of ours, such as `read_resource`."""

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(canonical({"name": self.name, **self.content})).hexdigest()

    @property
    def extra(self) -> str:
        """`resources` or `prompts` if the tool is ours and not the server's; else empty."""
        said = self.content.get("extra", "")
        return said if isinstance(said, str) else ""

    def table(self, key: str) -> Mapping[str, Json] | None:
        value = self.content.get(key)
        return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else None

    def text(self, key: str) -> str:
        value = self.content.get(key)
        return value if isinstance(value, str) else ""


@dataclass(frozen=True)
class Manifest:
    entries: Mapping[str, Entry] = field(default_factory=dict[str, Entry])

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(canonical([self.entries[name].digest for name in sorted(self.entries)])).hexdigest()

    def only(self, names: Iterable[str]) -> Manifest:
        return Manifest({name: self.entries[name] for name in names if name in self.entries})

    def offerable(self) -> Manifest:
        return self.only(name for name, entry in self.entries.items() if not why_not(entry))

    def to_json(self) -> dict[str, Json]:
        entries = sorted(self.entries.items())
        tools = [{"name": name, "sha256": entry.digest, **entry.content} for name, entry in entries]
        return {"version": VERSION, "sha256": self.digest, "tools": tools}

    @classmethod
    def from_json(cls, pinned: Mapping[str, Json]) -> Manifest:
        """Read the output of `to_json`. If it was altered, return an empty manifest: then every tool is new."""
        match pinned:
            case {"version": 1, "sha256": str(digest), "tools": [*tools]}:
                read = [_read_pinned_entry(tool) for tool in tools]
                made = cls({entry.name: entry for entry in read if entry})
                return made if made.digest == digest and len(made.entries) == len(read) else cls()
            case _:
                return cls()


@dataclass(frozen=True, slots=True)
class Change:
    tool: str
    kind: Kind
    diff: str
    """A unified diff for the user, with non-ASCII characters escaped."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Changes between the agreed listing and the current one; false if there are none."""

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def of(self, tool: str) -> Change | None:
        return next((change for change in self.changes if change.tool == tool), None)

    def names(self, kind: Kind) -> tuple[str, ...]:
        return tuple(change.tool for change in self.changes if change.kind == kind)

    @property
    def text(self) -> str:
        return "\n".join(f"{change.kind}: {change.tool}\n{change.diff}" for change in self.changes)


def canonical(value: Json) -> bytes:
    """Encode a value so that equal values give equal bytes: sorted keys, no Unicode normalisation."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def read_tools(listed: Iterable[Mapping[str, Json]], extras: Iterable[tuple[str, str]] = ()) -> Manifest:
    """Read a server's listing in any order. `extras` are (name, kind) of tools of ours; a server's own tools win.

    Different tools of one name become one entry with the digests of all, so that it equals none of them.
    """
    found: dict[str, list[Entry]] = {}
    for tool in listed:
        content = {key: tool[key] for key in FIELDS if tool.get(key) is not None}
        entry = Entry(str(tool.get("name", "")), content)
        same = found.setdefault(entry.name, [])
        if entry.digest not in [one.digest for one in same]:
            same.append(entry)
    entries: dict[str, Entry] = {}
    for name, same in found.items():
        first, *others = sorted(same, key=lambda one: one.digest)
        entries[name] = Entry(name, {**first.content, "others": [one.digest for one in others]}) if others else first
    for name, kind in extras:
        entries.setdefault(name, Entry(name, {"extra": kind}))
    return Manifest(entries)


def why_not(entry: Entry) -> str:
    """Return why a tool cannot be offered; empty if it can."""
    if not _NAME.fullmatch(entry.name):
        return f"{entry.name[:60]!a} is not a valid name for a tool"
    if "others" in entry.content:
        return f"{entry.name} is listed more than once, differently"
    if not entry.extra and entry.table("inputSchema") is None:
        return f"{entry.name} has no schema of its arguments"
    if len(canonical(entry.content)) > TOOL_BYTES:
        return f"{entry.name} is described in more than {TOOL_BYTES:,} bytes"
    return ""


def compare(pinned: Manifest, now: Manifest) -> Difference:
    changes: list[Change] = []
    for name in sorted(pinned.entries.keys() | now.entries.keys()):
        before, after = pinned.entries.get(name), now.entries.get(name)
        if before and after and before.digest == after.digest:
            continue
        kind: Kind = "changed" if before and after else "new" if after else "gone"
        changes.append(Change(show_ascii(name), kind, _diff(before, after)))
    return Difference(tuple(changes))


def show_ascii(text: str) -> str:
    """Escape to plain ASCII, so that look-alike characters can be told apart."""
    return text if text.isascii() and text.isprintable() else ascii(text)[1:-1]


def _read_pinned_entry(tool: Json) -> Entry | None:
    if not isinstance(tool, Mapping):
        return None
    content = dict(cast("Mapping[str, Json]", tool))
    name, digest = content.pop("name", None), content.pop("sha256", None)
    entry = Entry(name, content) if isinstance(name, str) else None
    return entry if entry and entry.digest == digest else None


def _diff(before: Entry | None, after: Entry | None) -> str:
    old, new = _lines(before) if before else [], _lines(after) if after else []
    names = "agreed" if before else "nothing", "now" if after else "nothing"
    if max(len(old), len(new)) > _COMPARED:
        heads = [f"--- {names[0]}", f"+++ {names[1]}"]
        return "\n".join([*heads, *(f"-{line}" for line in old), *(f"+{line}" for line in new)])
    return "\n".join(difflib.unified_diff(old, new, *names, lineterm=""))


def _lines(entry: Entry) -> list[str]:
    lines = [f"name: {show_ascii(entry.name)}"]
    for key, value in sorted(entry.content.items()):
        lines.append(f"{key}:")
        if isinstance(value, str):
            # Prefixed, so that a description cannot look like the next field.
            lines += [f"  | {show_ascii(line)}" for line in value.split("\n")]
        else:
            lines += [f"  {line}" for line in json.dumps(value, sort_keys=True, indent=2).split("\n")]
    return [
        f"{'  > ' if at else ''}{line[at : at + _PIECE]}" for line in lines for at in range(0, len(line) or 1, _PIECE)
    ]
