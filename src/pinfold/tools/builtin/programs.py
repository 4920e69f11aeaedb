"""Runs the toolbox programs inside the session. Their replies are untrusted and checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, cast

from pinfold.events import Json, PinfoldError, parse_json, plain_json
from pinfold.text import cap_text, first_line
from pinfold.tools.ports import Inside, Ran
from pinfold.tools.results import BadCall

Program: TypeAlias = Literal[
    "file_reader", "file_writer", "patcher", "file_finder", "text_search", "tables", "function_runner"
]
_TOOLBOX = files("pinfold") / "guest" / "toolbox"
_PARTS: Mapping[Program, tuple[str, ...]] = {
    "file_reader": ("program_io", "texts", "file_reader"),
    "file_writer": ("program_io", "texts", "file_writer"),
    "patcher": ("program_io", "texts", "file_writer", "patches", "patcher"),
    "file_finder": ("program_io", "texts", "file_finder"),
    "text_search": ("program_io", "texts", "text_search"),
    "tables": ("program_io", "texts", "sources", "tables"),
    "function_runner": ("program_io", "function_runner"),
}
# Loads the program's files as a package from memory.
_START = """\
import sys
from importlib.machinery import ModuleSpec
class Parts:
    sources = {sources!r}
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=name == "toolbox") if name in self.sources else None
    def create_module(self, spec):
        return None
    def exec_module(self, part):
        exec(compile(self.sources[part.__name__], part.__name__, "exec", dont_inherit=True), part.__dict__)
sys.meta_path.insert(0, Parts())
from toolbox import program_io, {program}
program_io.answer({program}.OPERATIONS)
"""
REPLY = 4 << 20
"""Maximum bytes of a reply; no program sends as much."""
WORDS = 4000
"""Maximum characters of a program's error message."""
TEXT = 1 << 20


class Reply:
    """A program's reply. Typed getters raise BadCall if the field has another type."""

    def __init__(self, fields: Mapping[str, Json], notices: tuple[str, ...] = ()) -> None:
        self._fields = fields
        self.notices = notices
        """What the sandbox did about it, such as rolling back, one line each."""

    def text(self, name: str = "text") -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise _nonsense()
        return cap_text(value, TEXT)

    def count(self, name: str) -> int:
        value = self._fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise _nonsense()
        return value

    def get(self, name: str) -> Json:
        return self._fields.get(name)


async def ask(inside: Inside, program: Program, do: str, given: Mapping[str, Json], *, timeout_s: float) -> Reply:
    """Run an operation of a program. Raises BadCall with the program's error, or if the program itself failed."""
    # Python starts twice as fast without site-packages; only these two programs need them.
    flags = ["-I"] if program in ("tables", "function_runner") else ["-I", "-S"]
    request = plain_json({"do": do, "with": given}).encode()
    ran = await inside.command(["python3", *flags, "-c", source(program)], timeout_s=timeout_s, stdin=request)
    return _read(ran, timeout_s)


@cache
def source(program: Program) -> str:
    """Return the whole program as one text."""
    sources = {f"toolbox.{name}": (_TOOLBOX / f"{name}.py").read_text("utf-8") for name in _PARTS[program]}
    return _START.format(sources={"toolbox": "", **sources}, program=program)


def _read(ran: Ran, timeout_s: float) -> Reply:
    if ran.status == "timeout":
        raise BadCall(f"it took longer than {timeout_s:g} s and was stopped; ask for less of it")
    if ran.status != "ok":
        words = first_line(ran.stderr[-WORDS:].decode("utf-8", "replace").rstrip().rpartition("\n")[2])
        killed = ran.code is not None and ran.code < 0
        why = (
            "it was killed, most likely because it ran out of memory"
            if killed
            else words or "it ended without a message"
        )
        raise BadCall(f"the session could not do this: {why}")
    if ran.dropped_bytes or len(ran.stdout) > REPLY:
        raise _nonsense()
    try:
        fields = parse_json(ran.stdout)
    except PinfoldError as error:
        raise _nonsense() from error
    match fields:
        case {"error": str(error)}:
            raise BadCall(cap_text(error, WORDS))
        case dict():
            return Reply(cast(dict[str, Json], fields), ran.notices)
        case _:
            raise _nonsense()


def _nonsense() -> BadCall:
    return BadCall("the session's answer cannot be read; has its Python been tampered with?")
