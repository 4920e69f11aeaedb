"""How far a build is, by what uv says. Draws nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

Phase: TypeAlias = Literal["wait", "resolve", "download", "install", "compile"]


class Progress(Struct, frozen=True, kw_only=True):
    """`total` may be 0 while it is not known, and grow while downloads are found. Downloads are counted in bytes."""

    phase: Phase
    done: int = 0
    total: int = 0


OnProgress: TypeAlias = Callable[[Progress], None]


def ignore_progress(_progress: Progress) -> None:
    """For whoever does not watch."""


_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_BEGUN = r"Downloading (\S+) \(([\d.]+)(B|KiB|MiB|GiB)\)\s*"


def progress_of_uv(on_progress: OnProgress) -> Callable[[str], None]:
    """Takes the lines of an installation, and an empty one now and then: whoever watches is told again."""
    sizes: dict[str, float] = {}
    largest = 0.0
    last = Progress(phase="download")

    def follow(line: str) -> None:
        nonlocal largest, last
        if begun := re.fullmatch(_BEGUN, line):
            sizes[begun[1]] = float(begun[2]) * _SIZES[begun[3]]
        match line.split():
            case ["Downloading", *_]:
                pass
            case ["Downloaded", name]:
                largest = max(largest, sizes.get(name, 0.0))
            case ["Prepared" | "Installed" as word, count, *_] if count.isdigit():
                done = int(count) if word == "Installed" else 0
                last = Progress(phase="install", done=done, total=int(count))
            case [] if sizes:
                pass
            case _:
                return
        if last.phase == "download":
            # All come side by side and share the line: of each there is as much as of the largest that is done.
            done = sum(min(size, largest) for size in sizes.values())
            last = Progress(phase="download", done=int(done), total=int(sum(sizes.values())))
        on_progress(last)

    return follow
