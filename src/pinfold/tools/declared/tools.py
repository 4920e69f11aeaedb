"""Loads a YAML file as a tool. The file is the user's own or trusted by them, so its claims are accepted.

A command is a list of arguments: each value stays within its own argument, and no shell is involved.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, cast

from msgspec import Meta, Struct

from pinfold.events import Effect, Json, Reach
from pinfold.text import NO_OUTPUT
from pinfold.tools.declared.parameters import Parameter, check_values, read_parameters, schema_of
from pinfold.tools.declared.requests import MOST_S, HttpFile, request_of
from pinfold.tools.declared.tables import FILE_BYTES, Plain, Template, fault, parse, read_as, template
from pinfold.tools.ports import Ports, Ran
from pinfold.tools.results import BadCall, BadTool, Result
from pinfold.tools.tool import MAX_OUTPUT, AnyTool, Loaded, Tool, Trust

_SCRIPTED = re.compile(r"(?:ba|da|z|k|c|fi)?sh|python[\d.]*|perl|ruby|node|php|awk|gawk|mawk")
_SCRIPT_OPTIONS = frozenset({"-c", "-e", "--eval", "--command", "-r", "-ec", "-lc", "-ic"})
_OPERATORS = re.compile(r"[|&;<>`]|\$\(|\$\w")


class _ToolFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = ""
    description: str = ""
    parameters: Json = None
    command: str | tuple[Plain, ...] | None = None
    stdin: str = ""
    workdir: str = ""
    env: dict[str, Plain] = {}
    http: HttpFile | None = None
    effect: Effect = "once"
    reach: Reach | None = None
    trust: Trust = "untrusted"
    timeout_s: Annotated[float, Meta(gt=0, le=MOST_S)] = 30.0
    max_output: Annotated[int, Meta(gt=0, le=1_000_000)] = MAX_OUTPUT
    parallel_safe: bool | None = None
    cache: bool = False


def command_of(
    given: _ToolFile, source: str, parameters: Mapping[str, Parameter], ports: Ports
) -> tuple[Callable[..., Awaitable[Result]], set[str]]:
    """Return the function that runs the command, and the parameters it uses."""
    known, timeout_s = set(parameters), given.timeout_s
    argv = [template(source, f"command.{n}", text, known) for n, text in enumerate(_words(given.command, source))]
    _check_places(source, argv, parameters)
    stdin = template(source, "stdin", given.stdin, known)
    workdir = template(source, "workdir", given.workdir, known)
    env = {key: template(source, f"env.{key}", str(text), known) for key, text in given.env.items()}
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


def _words(content: str | Sequence[Plain] | None, source: str) -> list[str]:
    if isinstance(content, str):
        if _OPERATORS.search(content):
            words = "no shell runs it; write [bash, -c, 'your | script \"$1\"', bash, '{parameter}']"
            fault(source, "command", words)
        try:
            content = shlex.split(content)
        except ValueError as error:
            fault(source, "command", f"{error}; write it as a list")
    if not content:
        fault(source, "command", "should be a list such as [program, argument, '{parameter}']")
    return [str(word) for word in content]


def _check_places(source: str, argv: list[Template], parameters: Mapping[str, Parameter]) -> None:
    if argv[0].holes or not argv[0].parts:
        fault(source, "command.0", "the program must be named here; a parameter cannot choose it")
    program = PurePosixPath(argv[0].fill({})).name
    for number, (before, word) in enumerate(pairwise(argv), start=1):
        after_option = not before.holes and before.fill({}) in _SCRIPT_OPTIONS
        is_script = after_option or (number == 1 and "awk" in program)
        if word.holes and _SCRIPTED.fullmatch(program) and is_script:
            words = "a parameter inside a script would be run as code; pass it as a separate argument ('$1' in a shell)"
            fault(source, f"command.{number}", words)
        for name in word.holes:
            if parameters[name].kind in ("array", "object"):
                words = f"{name!r} is a list or an object and cannot fill one argument; use stdin"
                fault(source, f"command.{number}", words)


def _fill_arguments(argv: list[Template], values: Mapping[str, Json], parameters: Mapping[str, Parameter]) -> list[str]:
    words: list[str] = []
    options_end = False
    for one in argv:
        if one.lacks(values):
            continue  # an argument without a value is left out entirely
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
            raise BadCall(f"{program} was not done after {timeout_s:g} s, and was stopped\n{err or out}".rstrip())
        case _:
            raise BadCall(f"{program} ended with exit code {ran.code}\n{err or out}".rstrip())


GRACE_S = 15.0
_OTHER_KEYS = {
    **dict.fromkeys(("input_schema", "inputSchema", "arguments", "args", "inputs"), "parameters"),
    "timeout": "timeout_s",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OF_COMMANDS: tuple[Reach, ...] = ("nothing", "files", "workspace")


def load_folder(folder: Path, ports: Ports) -> Loaded:
    """Load every `*.yaml` and `*.yml` of a folder; a bad file does not stop the others."""
    tools: list[AnyTool] = []
    faults: list[str] = []
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        try:
            tools.append(load_yaml(path, ports))
        except BadTool as fault:
            faults.append(str(fault))
    return Loaded(tuple(tools), tuple(faults))


def load_yaml(path: Path, ports: Ports) -> AnyTool:
    """Load a tool. Raises BadTool with the file, the key and the fix in one line."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise BadTool(f"{path}: it cannot be read: {error.strerror}") from error
    return yaml_tool(content, str(path), ports)


def yaml_tool(content: bytes, source: str, ports: Ports) -> AnyTool:
    """Build a tool from content that was already read, and perhaps shown to the user."""
    given = read_as(_normalize_shape(parse(content, source)), _ToolFile, source)
    if not _NAME.fullmatch(given.name):
        fault(source, "name", f"{given.name!r} cannot be a tool's name: use letters, digits and underscores")
    if not given.description.strip():
        fault(source, "description", "say in a sentence what the tool does: the model chooses by it")
    is_command = given.command is not None
    if is_command == (given.http is not None):
        words = "it needs `command`, a list of a program and its arguments, or `http`, a request; one of them"
        fault(source, "", words)
    if given.effect == "pure" and not is_command:
        fault(source, "effect", "a request leaves this machine: keyed if it may be repeated, else once")
    if given.cache and given.effect != "pure":
        fault(source, "cache", "only a tool with `effect: pure` can be cached")
    reach: Reach = given.reach or ("workspace" if is_command else "network")
    if is_command and reach not in _OF_COMMANDS:
        fault(source, "reach", f"a command runs in the sandbox: {', '.join(_OF_COMMANDS)}, not {reach}")
    if not is_command and reach != "network":
        fault(source, "reach", f"a request reaches the network, not {reach}; leave it out")
    parameters = read_parameters(given.parameters, source)
    timeout_s, to = given.timeout_s, ""
    if given.http is None:
        function, used = command_of(given, source, parameters, ports)
    else:
        function, outline = request_of(given.http, source, parameters, ports, timeout_s)
        used, timeout_s, to = outline.used_parameters(), outline.timeout_s, outline.to
    for parameter in parameters:
        if parameter not in used:
            fault(source, f"parameters.{parameter}", f"it is never used; write {{{parameter}}} where it belongs")
    return Tool(
        function=function,
        name=given.name,
        description=given.description.strip(),
        effect=given.effect,
        timeout_s=timeout_s + GRACE_S,
        parallel_safe=given.effect == "pure" if given.parallel_safe is None else given.parallel_safe,
        parameters=schema_of(parameters),
        reach=reach,
        trust=given.trust,
        max_output=given.max_output,
        cache=given.cache,
        takes=tuple(one.argument for one in parameters.values()),
        goes=(lambda _: (reach, to)) if to else None,
    )


def _normalize_shape(content: Json) -> Json:
    """Convert other tools' formats to ours: a `function` around the content, other names for keys."""
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
