"""A YAML file as a tool. The file is the user's own or trusted by them, so its claims are believed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from pinfold.events import Effect, Json, Reach
from pinfold.tools.declared import commands
from pinfold.tools.declared.commands import command_of
from pinfold.tools.declared.parameters import read_parameters, schema_of
from pinfold.tools.declared.requests import request_of
from pinfold.tools.declared.tables import FILE_BYTES, Table, parse
from pinfold.tools.ports import Ports
from pinfold.tools.results import BadTool
from pinfold.tools.tool import MAX_OUTPUT, Tool, Trust

TIMEOUT_S = 30.0
MOST_S = 600.0
GRACE_S = 15.0
_KEYS = (
    *("name", "description", "parameters", "http", "effect", "reach", "trust", "timeout_s", "max_output"),
    *("parallel_safe", "cache", *commands.KEYS),
)
_OTHER_KEYS = {
    **dict.fromkeys(("input_schema", "inputSchema", "arguments", "args", "inputs"), "parameters"),
    "timeout": "timeout_s",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OF_COMMANDS: tuple[Reach, ...] = ("nothing", "files", "workspace")


@dataclass(frozen=True, slots=True)
class Loaded:
    tools: tuple[Tool[..., Any], ...]
    faults: tuple[str, ...]
    """A line for each file that is no tool."""


def load_folder(folder: Path, ports: Ports) -> Loaded:
    """Every `*.yaml` and `*.yml` of a folder; a file that is no tool does not stop the others."""
    tools: list[Tool[..., Any]] = []
    faults: list[str] = []
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        try:
            tools.append(load_yaml(path, ports))
        except BadTool as fault:
            faults.append(str(fault))
    return Loaded(tuple(tools), tuple(faults))


def load_yaml(path: Path, ports: Ports) -> Tool[..., Any]:
    """Raises BadTool: the file, the key and the fix in one line."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise BadTool(f"{path}: it cannot be read: {error.strerror}") from error
    return yaml_tool(content, str(path), ports)


def yaml_tool(content: bytes, source: str, ports: Ports) -> Tool[..., Any]:
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
