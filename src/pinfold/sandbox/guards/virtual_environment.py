"""What is obeyed in the user's virtual environments besides the names in the table of `autorun_files.py`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from pinfold.sandbox.guards.autorun_files import Match, Row
from pinfold.sandbox.kernel.safe_files import entries_of, link_target

MODULE = Row("site-packages/", "Python")
"""A module that a path file (`*.pth`) imports, or its bytecode: it runs at every start."""
PROGRAM = Row("bin/", "the shell", "tell")
STAND_IN = Row("bin/", "the shell")
"""A new program with the name of one of the system's, in whose place it is run once the environment is entered."""
_SYSTEM = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
_ON_THE_WAY = re.compile(r"bin|lib(64)?(/python[^/]*(/site-packages)?)?")
"""A link there would lead Python to other files than the ones that are watched."""
_IMPORT = re.compile(r"\bimport\s+([\w., \t]+)|\bfrom\s+([\w.]+)|__import__\(\s*['\"]([\w.]+)")
_PATH_FILE_BYTES = 1 << 16


class VirtualEnvironment(Struct, frozen=True):
    """Paths are relative to the workspace."""

    home: str
    imported: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """By folder: the modules that path files import, in whichever of these folders Python finds them."""
    links: dict[str, str] = field(default_factory=dict[str, str])
    """Where the user's own links lead that are on the way to the modules."""
    programs: frozenset[str] = frozenset()
    """Names in `bin`."""

    def match(self, path: str, target: str | None = None) -> Match | None:
        """`target`: where it leads, if it is a link."""
        for folder, names in self.imported.items():
            if path.startswith(f"{folder}/"):
                first, _, below = path[len(folder) + 1 :].partition("/")
                if first == "__pycache__":
                    first = f"{first}/{below.partition('/')[0]}"
                if first.rpartition("/")[2].partition(".")[0] in names:
                    return Match(MODULE, f"{folder}/{first}")
        start = f"{self.home}/" if self.home else ""
        within = path[len(start) :] if path.startswith(start) else ""
        if target is not None and _ON_THE_WAY.fullmatch(within) and self.links.get(path) != target:
            return Match(MODULE, path)
        program = re.fullmatch(r"bin/((?!python|activate)[^/]+)", within)
        if program is None:
            return None
        is_stand_in = program[1] not in self.programs and _is_of_the_system(program[1])
        return Match(STAND_IN if is_stand_in else PROGRAM, path)

    def matches(self, top: str) -> Iterator[Match]:
        """Of all that is there."""
        start = Path(top, self.home)
        folders = [start, start / "bin", start / "lib", *start.glob("lib/python*")]
        folders += [Path(top, folder, below) for folder in self.imported for below in ("", "__pycache__")]
        for folder in folders:
            for entry in entries_of(str(folder)):
                found = self.match(entry.path[len(top) + 1 :], link_target(entry.path))
                if found is not None:
                    yield found


def read_environment(top: str, home: str) -> VirtualEnvironment:
    start = Path(top, home)
    imported: dict[str, frozenset[str]] = {}
    links: dict[str, str] = {}
    ways = ("bin", "lib*", "lib*/python*", "lib*/python*/site-packages")
    for path in (str(path) for way in ways for path in start.glob(way)):
        if target := link_target(path):
            links[path[len(top) + 1 :]] = target
    for site in start.glob("lib/python*/site-packages"):
        folders, names = [str(site)], set[str]()
        for entry in entries_of(str(site)):
            if entry.name.endswith(".pth"):
                lines = _lines(entry.path)
                names |= {name for line in lines if _runs(line) for name in _modules(line)}
                folders += [os.path.normpath(os.path.join(site, line)) for line in lines if not _runs(line)]  # noqa: PTH118
        within = {folder[len(top) + 1 :] for folder in folders if folder.startswith(f"{top}/")}
        if names:
            imported |= {folder: imported.get(folder, frozenset()) | names for folder in within}
    programs = frozenset(entry.name for entry in entries_of(f"{start}/bin"))
    return VirtualEnvironment(home, imported, links, programs)


def _is_of_the_system(name: str) -> bool:
    """Python's own tools apart: an environment is there to bring others of these."""
    for folder in _SYSTEM:
        try:
            with Path(folder, name).open("rb") as file:
                first = file.readline(200)
        except OSError:
            continue
        return not (first.startswith(b"#!") and b"python" in first)
    return False


def _runs(line: str) -> bool:
    """Python's own rule."""
    return line.startswith(("import ", "import\t"))


def _modules(line: str) -> Iterator[str]:
    for names in (name for found in _IMPORT.findall(line) for name in found):
        for name in re.split(r"[,;]", names):
            first = name.strip().partition(" ")[0].partition(".")[0]
            if first and first not in sys.stdlib_module_names:
                yield first


def _lines(path: str) -> list[str]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        text = file.read(_PATH_FILE_BYTES).decode("utf-8", "replace")
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
