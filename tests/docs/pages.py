"""The documentation as tests see it: its pages, their blocks, their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"# (?P<name>[\w./~-]+\.(?:py|toml|yaml|jsonl|json))\n")
_LINK = re.compile(
    r"(?<!!)\[[^\]]*\]\((?P<to>[^)\s]+)\)|!\[[^\]]*\]\((?P<picture>[^)\s]+)\)|<img[^>]* src=\"(?P<drawn>[^\"]+)\""
)

# What no two runs have alike, on both sides.
_VARYING = (
    (re.compile(r"\b\d+\.\d\d s\b"), "TIME"),
    (re.compile(r"\bs_[0-9a-f]{12}\b"), "SESSION"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "COMMIT"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?"), "WHEN"),
    (re.compile(r"\buid \d+"), "UID"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`mark` is the comment on the line before it: `not run: WHY`, or `exits N`."""

    language: str
    body: str
    mark: str

    @property
    def file(self) -> str:
        """The name of the file that it shows; empty if it shows none."""
        named = _FILE.match(self.body)
        return named["name"] if named else ""

    @property
    def runs(self) -> bool:
        return self.language == "console" and not self.mark.startswith("not run: ")

    @property
    def code(self) -> int:
        return int(self.mark.removeprefix("exits ")) if self.mark.startswith("exits ") else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command as it is typed, and the lines that are shown below it."""

    command: str
    shown: tuple[str, ...]


def pages() -> list[Path]:
    """All there are; an installed copy is tested without them."""
    found = [*ROOT.glob("README.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(path for path in found if "work" not in path.relative_to(ROOT).parts)


def blocks(text: str) -> list[Block]:
    return [
        Block(language=found["language"], body=found["body"], mark=found["mark"] or "")
        for found in _FENCE.finditer(text)
    ]


def steps(body: str) -> Iterator[Step]:
    """Commands begin with `$ `; a here-document and a line that ends in a backslash go on."""
    lines = body.splitlines()
    while lines:
        command = lines.pop(0)
        if not command.startswith("$ "):
            raise ValueError(f"a console block must begin with a command, not {command!r}")
        command = command.removeprefix("$ ")
        if here := re.search(r"<<'(\w+)'", command):
            end = lines.index(here[1])
            command = "\n".join([command, *lines[: end + 1]])
            lines = lines[end + 1 :]
        while command.endswith("\\"):
            command += "\n" + lines.pop(0)
        shown: list[str] = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        yield Step(command=command, shown=tuple(shown))


def links(text: str) -> Iterator[str]:
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for found in _LINK.finditer(re.sub(r"`[^`\n]*`", "", without_code)):
        yield found["to"] or found["picture"] or found["drawn"]


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    }


def plain(line: str) -> str:
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line.rstrip()


def is_shown(line: str, printed: str) -> bool:
    """`...` in a shown line stands for anything."""
    pattern = ".*".join(map(re.escape, plain(line).split("...")))
    return re.fullmatch(pattern, plain(printed)) is not None


def missing(shown: tuple[str, ...], printed: list[str]) -> list[str]:
    """Lines of `shown` that are not printed, or not in this order."""
    rest = iter(printed)
    return [line for line in shown if line.strip() and not any(is_shown(line, one) for one in rest)]
