"""Translates cells that are not plain Python: `!command`, `%magic`, `thing?`. Used only after the compiler refused one.

Commands need nothing but a shell, and `%pip install` not even that. Magics need IPython in the environment.
"""

from __future__ import annotations

import builtins
import re
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from . import commands

if TYPE_CHECKING:
    from .runner import Engine

SYSTEM, LINES, SCRIPT = "_pinfold_system", "_pinfold_lines", "_pinfold_script"
MOST_COMMANDS = 500
"""The most commands in one cell; each takes one more try of the compiler."""
_INSTALL = r"(?:pip|conda|mamba|micromamba|uv)[ \t]+(?:\S+[ \t]+)??install\b"
_COMMAND = re.compile(rf"(\s*)(?:([\w.,\[\]'\" ]+?)\s*=\s*)?(?:!(!?)|%(?={_INSTALL}))(.*)\Z", re.DOTALL)
_SCRIPT = re.compile(r"\s*%%(bash|sh)[ \t]*\n(.*)\Z", re.DOTALL)
_MAGIC = re.compile(r"^\s*(?:[\w.,\[\]'\" ]+=\s*)?[%!?]|\?\s*$|^\s*(?:>>>|In \[)|\A[ \t]", re.MULTILINE)


class MagicRefused(SyntaxError):
    """A cell with magics that cannot be translated here; the message says why."""

    __module__ = "builtins"  # so that a traceback shows the plain name


def translate_cell(source: str, failure: SyntaxError, engine: Engine) -> str | None:
    """Return the cell as Python, or None if it is simply wrong."""
    if not _MAGIC.search(source):
        return None
    _install(engine)
    script = _SCRIPT.match(source)
    if script is not None:
        return f"{SCRIPT}({script[1]!r}, {script[2]!r})"
    python = _translate_commands(source, failure, engine)
    if python is not None:
        return python
    if not isinstance(sys.modules.get("IPython"), ModuleType) and find_spec("IPython") is None:
        raise MagicRefused(
            "magics need IPython, which is not in this environment; `!command` and `%%bash` work without it"
        )
    from .ipython import shell

    try:
        made = shell(engine)
    except Exception as error:
        words = f"magics do not work with the IPython of this environment ({error}); a newer one may do"
        raise MagicRefused(words) from error
    python = made.input_transformer_manager.transform_cell(source)
    return None if python.rstrip("\n") == source.rstrip("\n") else python


def _translate_commands(source: str, failure: SyntaxError, engine: Engine) -> str | None:
    """Turn every `!command` and `%pip install` into a call; None if more is wrong. The compiler says where they are."""
    lines = source.split("\n")
    for _ in range(MOST_COMMANDS):
        place = (failure.lineno or 0) - 1
        found = _COMMAND.match(lines[place]) if 0 <= place < len(lines) else None
        if found is None or lines[place].endswith("\\"):
            return None  # not a command, or one that continues on the next line: left to IPython
        indent, target, twice, command = found.groups()
        call = f"{LINES if target or twice else SYSTEM}({command.strip()!r})"
        lines[place] = f"{indent}{target} = {call}" if target else f"{indent}{call}"
        error = engine.parse("\n".join(lines))
        if not isinstance(error, SyntaxError):
            return "\n".join(lines)
        failure = error
    return None


def _install(engine: Engine) -> None:
    """Define the functions that translated cells call."""
    if hasattr(builtins, SYSTEM):
        return

    def system(command: str) -> None:
        code = commands.system(commands.expand_variables(command, engine.namespace))
        engine.namespace["_exit_code"] = code

    def lines(command: str) -> list[str]:
        return commands.as_lines(commands.getoutput(commands.expand_variables(command, engine.namespace)))

    def script(program: str, text: str) -> None:
        commands.run_script([program], text)

    builtins.__dict__.update({SYSTEM: system, LINES: lines, SCRIPT: script})
