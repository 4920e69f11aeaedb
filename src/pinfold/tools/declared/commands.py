"""A program as a tool: its arguments are a list, each value fills its own place, and no shell is involved."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, cast

from pinfold.events import Json
from pinfold.text import NO_OUTPUT
from pinfold.tools.declared.parameters import Parameter, check_values
from pinfold.tools.declared.tables import Table, Template, kind_of, template
from pinfold.tools.ports import Ports, Ran
from pinfold.tools.results import BadCall, Result

KEYS = ("command", "stdin", "workdir", "env")
_SCRIPTED = re.compile(r"(?:ba|da|z|k|c|fi)?sh|python[\d.]*|perl|ruby|node|php|awk|gawk|mawk")
_SCRIPT_OPTIONS = frozenset({"-c", "-e", "--eval", "--command", "-r", "-ec", "-lc", "-ic"})
_OPERATORS = re.compile(r"[|&;<>`]|\$\(|\$\w")


def command_of(
    top: Table, parameters: Mapping[str, Parameter], ports: Ports, timeout_s: float
) -> tuple[Callable[..., Awaitable[Result]], set[str]]:
    """What runs it, and the parameters it uses."""
    known = set(parameters)
    argv = [template(top, f"command.{n}", text, known) for n, text in enumerate(_words(top))]
    _check_places(top, argv, parameters)
    stdin = template(top, "stdin", top.text("stdin"), known)
    workdir = template(top, "workdir", top.text("workdir"), known)
    env = {key: template(top, f"env.{key}", text, known) for key, text in top.texts("env").items()}
    used = {name for one in (*argv, stdin, workdir, *env.values()) for name in one.holes}

    async def run(**values: Any) -> Result:
        if ports.inside is None:
            raise BadCall("no program can be run in this session")
        check_values(parameters, values)
        words = _fill_arguments(argv, values, parameters)
        folder = workdir.fill(values)
        if PurePosixPath(folder).is_absolute() or ".." in PurePosixPath(folder).parts:
            raise BadCall(f"the folder {folder!r} is outside the workspace")
        ran = await ports.inside.command(
            words,
            timeout_s=timeout_s,
            stdin=stdin.fill(values).encode("utf-8", "surrogatepass"),
            workdir=folder,
            env={key: one.fill(values) for key, one in env.items()} or None,
        )
        return _command_result(words[0], ran, timeout_s)

    return run, used


def _words(top: Table) -> list[str]:
    content = top.take("command")
    if isinstance(content, str):
        if _OPERATORS.search(content):
            top.fault("command", "no shell reads it; write [bash, -c, 'your | script \"$1\"', bash, '{parameter}']")
        try:
            content = shlex.split(content)
        except ValueError as error:
            top.fault("command", f"{error}; write it as a list")
    if not isinstance(content, list) or not content:
        top.fault("command", f"should be a list such as [program, argument, '{{parameter}}'], not {kind_of(content)}")
    words: list[str] = []
    for number, word in enumerate(cast("list[Json]", content)):
        if isinstance(word, bool) or not isinstance(word, str | int | float):
            top.fault(f"command.{number}", f"should be text, not {kind_of(word)}; put it in quotes")
        words.append(str(word))
    return words


def _check_places(top: Table, argv: list[Template], parameters: Mapping[str, Parameter]) -> None:
    if argv[0].holes or not argv[0].parts:
        top.fault("command.0", "the program must be named here; a parameter cannot choose it")
    program = PurePosixPath(argv[0].fill({})).name
    for number, (before, word) in enumerate(pairwise(argv), start=1):
        after_option = not before.holes and before.fill({}) in _SCRIPT_OPTIONS
        is_script = after_option or (number == 1 and "awk" in program)
        if word.holes and _SCRIPTED.fullmatch(program) and is_script:
            top.fault(
                f"command.{number}",
                "a parameter inside a script would be run as code; pass it as an argument of its own ('$1' in a shell)",
            )
        for name in word.holes:
            if parameters[name].kind in ("array", "object"):
                top.fault(
                    f"command.{number}", f"{name!r} is a list or an object and cannot fill one argument; use stdin"
                )


def _fill_arguments(argv: list[Template], values: Mapping[str, Json], parameters: Mapping[str, Parameter]) -> list[str]:
    words: list[str] = []
    options_end = False
    for one in argv:
        if one.lacks(values):
            continue  # an argument for which nothing was given is left out whole
        word = one.fill(values)
        if "\0" in word:
            raise BadCall("an argument holds a NUL character; leave it out")
        starts = bool(one.parts) and not isinstance(one.parts[0], str)
        is_number = one.only is not None and parameters[one.only].kind in ("integer", "number")
        if starts and word.startswith("-") and not options_end and not is_number:
            raise BadCall(f"{one.holes[0]!r} may not begin with '-': the program would take it for an option")
        options_end = options_end or (word == "--" and not one.holes)
        words.append(word)
    return words


def _command_result(program: str, ran: Ran, timeout_s: float) -> Result:
    out, err = ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace")
    match ran.status:
        case "ok":
            return Result(text=out or NO_OUTPUT, value=out, notices=ran.notices)
        case "timeout":
            raise BadCall(f"{program} was not done after {timeout_s:g} s, and was ended\n{err or out}".rstrip())
        case _:
            raise BadCall(f"{program} ended with exit code {ran.code}\n{err or out}".rstrip())
