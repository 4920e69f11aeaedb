"""A YAML file as a tool. The file is the user's own or trusted by them, so its claims are believed.

A program's arguments are a list: each value fills its own place, and no shell is involved.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, cast, get_args

from pinfold.events import Effect, Json, Reach
from pinfold.text import NO_OUTPUT
from pinfold.tools.declared.parameters import Parameter, check_values, read_parameters, schema_of
from pinfold.tools.declared.requests import request_of
from pinfold.tools.declared.tables import FILE_BYTES, Table, Template, kind_of, parse, template
from pinfold.tools.ports import Ports, Ran
from pinfold.tools.results import BadCall, BadTool, Result
from pinfold.tools.tool import MAX_OUTPUT, AnyTool, Tool, Trust

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


TIMEOUT_S = 30.0
MOST_S = 600.0
GRACE_S = 15.0
_KEYS = (
    *("name", "description", "parameters", "http", "effect", "reach", "trust", "timeout_s", "max_output"),
    *("parallel_safe", "cache", *KEYS),
)
_OTHER_KEYS = {
    **dict.fromkeys(("input_schema", "inputSchema", "arguments", "args", "inputs"), "parameters"),
    "timeout": "timeout_s",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OF_COMMANDS: tuple[Reach, ...] = ("nothing", "files", "workspace")


@dataclass(frozen=True, slots=True)
class Loaded:
    tools: tuple[AnyTool, ...]
    faults: tuple[str, ...]
    """A line for each file that is no tool."""


def load_folder(folder: Path, ports: Ports) -> Loaded:
    """Every `*.yaml` and `*.yml` of a folder; a file that is no tool does not stop the others."""
    tools: list[AnyTool] = []
    faults: list[str] = []
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        try:
            tools.append(load_yaml(path, ports))
        except BadTool as fault:
            faults.append(str(fault))
    return Loaded(tuple(tools), tuple(faults))


def load_yaml(path: Path, ports: Ports) -> AnyTool:
    """Raises BadTool: the file, the key and the fix in one line."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise BadTool(f"{path}: it cannot be read: {error.strerror}") from error
    return yaml_tool(content, str(path), ports)


def yaml_tool(content: bytes, source: str, ports: Ports) -> AnyTool:
    """From bytes that were read, and perhaps judged, before."""
    top = Table(source, "", _normalize_shape(parse(content, source)))
    name = top.text("name")
    if not _NAME.fullmatch(name):
        top.fault("name", f"{name!r} cannot be a tool's name: use letters, digits and underscores")
    description = top.text("description").strip()
    if not description:
        top.fault("description", "say in a sentence what the tool does: the model chooses by it")
    parameters = read_parameters(top)
    effect = top.choice("effect", get_args(Effect), "once")
    if effect == "pure" and "http" in top:
        top.fault("effect", "a request leaves this machine: keyed if it may be repeated, else once")
    is_command = "command" in top
    if is_command == ("http" in top):
        top.fault("", "it needs `command`, a list of a program and its arguments, or `http`, a request; one of them")
    timeout_s = top.number("timeout_s", TIMEOUT_S, MOST_S)
    reach: Reach = top.choice("reach", get_args(Reach), "workspace" if is_command else "network")
    to = ""
    if is_command:
        if reach not in _OF_COMMANDS:
            top.fault("reach", f"a command runs in the sandbox: {', '.join(_OF_COMMANDS)}, not {reach}")
        function, used = command_of(top, parameters, ports, timeout_s)
    else:
        if reach != "network":
            top.fault("reach", f"a request reaches the network, not {reach}; leave it out")
        http = top.table("http")
        if http is None:
            top.fault("http", "it is empty; give it a url")
        function, outline = request_of(http, parameters, ports, timeout_s)
        used, timeout_s, to = outline.used_parameters(), outline.timeout_s, outline.to
    for parameter in parameters:
        if parameter not in used:
            top.fault(f"parameters.{parameter}", f"it is never used; write {{{parameter}}} where it belongs")
    parallel_safe = top.flag("parallel_safe", effect == "pure")
    cache = top.flag("cache", default=False)
    if cache and effect != "pure":
        top.fault("cache", "only a tool with `effect: pure` can be cached")
    trust: Trust = top.choice("trust", get_args(Trust), "untrusted")
    max_output = int(top.number("max_output", MAX_OUTPUT, 1_000_000))
    top.end(_KEYS)
    return Tool(
        function=function,
        name=name,
        description=description,
        effect=effect,
        timeout_s=timeout_s + GRACE_S,
        parallel_safe=bool(parallel_safe),
        parameters=schema_of(parameters),
        reach=reach,
        trust=trust,
        max_output=max_output,
        cache=bool(cache),
        takes=tuple(one.argument for one in parameters.values()),
        goes=(lambda _: (reach, to)) if to else None,
    )


def _normalize_shape(content: Json) -> Json:
    """The shapes others use, as ours: a `function` around it, other names for keys."""
    if not isinstance(content, dict):
        return content
    top = dict(cast("dict[str, Json]", content))
    if top.get("type") == "function":
        top.pop("type")
    if isinstance(top.get("function"), dict):
        top = {**cast("dict[str, Json]", top.pop("function")), **top}
    for other, ours in _OTHER_KEYS.items():
        if other in top and ours not in top:
            top[ours] = top.pop(other)
    return top
