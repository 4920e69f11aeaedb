"""The tools of a session by name: which ones the model is shown, and calls with checked arguments. No permissions here.

Other packages add tools through the entry point group `pinfold.tools`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from pinfold.events import Action, CallTool, Json, RunCell, ToolSchema
from pinfold.text import closest, first_line, join_names
from pinfold.tools.arguments import Argument, drop_null
from pinfold.tools.repair import BUILT_IN, meant_args, meant_tools, other_names, split_verb
from pinfold.tools.results import BadTool, Result, ToolFailed
from pinfold.tools.tool import AnyTool, Loaded, Tool, as_tool, run

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pinfold.tools.search import Index


PYTHON = ToolSchema(
    name="python",
    description="Run Python.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
_CODE = (Argument(name="code", hint=str),)
SHOWN = ("python", "shell", "read_file", "edit_file", "ask_user")
"""Tools whose schema the model gets by default; the others are named in one line."""
ANSWER = "answer"
"""A tool that only code calls."""
FITTING = 4
"""Maximum number of tools suggested with a message of the user."""
_NAMED = 12
"""Maximum number of tools listed when the model called an unknown one."""
_CATALOGUE = (
    "More tools are Python functions: `from servers.{} import {}`, then call or await it; "
    '`servers.search("words")` finds them, `help(f)` explains one. Servers: {}.'
)
_CACHED = 256
"""Maximum number of cached results; the oldest go first."""
_CACHED_CHARS = 4_000_000
_CATALOGUED = 8
"""Maximum number of servers in the catalogue line."""


class Registry:
    """`enable` and `disable` are names or patterns such as `web_*`; `enable` None means all.

    A disabled tool is not shown and cannot be called.
    """

    def __init__(
        self, tools: Iterable[AnyTool] = (), *, enable: Iterable[str] | None = None, disable: Iterable[str] = ()
    ) -> None:
        self._every: dict[str, AnyTool | None] = {PYTHON.name: None}
        """All tools by name, disabled ones included."""
        self._own: dict[str, tuple[AnyTool, ...]] = {}
        self._put: dict[str, tuple[AnyTool, ...]] = {}
        self._shown: tuple[str, ...] | None = None
        self._cache: dict[str, Result] = {}
        """Results of tools with `cache`, by call."""
        self._index: Index | None = None
        """Search index of the servers' tools; built on first use."""
        for tool in tools:
            self.add(tool)
        self._wanted = None if enable is None else self._patterns("tools.enable", enable)
        self._unwanted = self._patterns("tools.disable", disable)
        for tool in self._callable():
            if tool.parameters is None:
                # Report a type without a JSON schema now, not in the middle of a turn.
                _ = tool.schema

    def put(self, server: str, tools: Iterable[AnyTool]) -> None:
        """Set the tools of a server; empty if they are not known yet.

        They replace the built-in tools of that module, which can still be called by name.
        """
        for tool in self._put.get(server, ()):
            self._every.pop(tool.name, None)
        self._put[server] = tuple(tools)
        self._index = None
        self._every.update((tool.name, tool) for tool in self._put[server])

    def remove(self, server: str) -> None:
        """Forget a server added with `put`."""
        self.put(server, ())
        del self._put[server]

    def add(self, tool: AnyTool) -> None:
        """Add a tool. Raises BadTool if its name is taken."""
        if tool.name in self._every:
            raise BadTool(f"two tools are called {tool.name!r}; give one another name")
        self._own[tool.server] = (*self._own.get(tool.server, ()), tool)
        self._every[tool.name] = tool

    def _callable(self) -> list[AnyTool]:
        return [tool for name, tool in self._every.items() if tool and self._is_on(name)]

    def _is_on(self, name: str) -> bool:
        return not _matches(name, self._unwanted) and (self._wanted is None or _matches(name, self._wanted))

    def _patterns(self, key: str, given: Iterable[str]) -> tuple[str, ...]:
        patterns = tuple(given)
        for pattern in patterns:
            # A name with a dot belongs to a server, and is known only once that has started.
            is_exact = not any(sign in pattern for sign in "*?[.")
            if is_exact and pattern not in self._every and pattern not in BUILT_IN:
                raise BadTool(f"{key} names {pattern!r}: {_no_such(pattern, self._every)}")
        return patterns

    def show(self, shown: Iterable[str] | None) -> None:
        """Set the tools whose schemas the model is shown; None for all. The others can still be called."""
        self._shown = None if shown is None else tuple(shown)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tools that can be called."""
        return tuple(name for name in self._every if self._is_on(name))

    @property
    def servers(self) -> dict[str, tuple[AnyTool, ...]]:
        """The tools in each module of `servers`."""
        return {
            server: tuple(tool for tool in tools if self._is_on(tool.name))
            for server, tools in {**self._own, **self._put}.items()
        }

    def schemas(self) -> tuple[ToolSchema, ...]:
        """The schemas that the model is shown in full."""
        told = [PYTHON] if self._is_shown(PYTHON.name) else []
        told += [_briefly(tool) for tool in self._callable() if self._is_shown(tool.name)]
        return tuple(told)

    def catalogue(self) -> str:
        """Return a line about the tools that `schemas` leaves out. Its length does not grow with their number."""
        servers = {
            server: hidden
            for server, tools in self.servers.items()
            if (hidden := [tool for tool in tools if not self._is_shown(tool.name)]) or not tools
        }
        example = next((tools[0] for tools in servers.values() if tools), None)
        if example is None:
            return ""
        return _CATALOGUE.format(
            example.server,
            example.name.rpartition(".")[2],
            # Servers the user added come first.
            join_names(sorted(servers, key=lambda server: server not in self._put), _CATALOGUED),
        )

    def fitting(self, text: str, *, without: Collection[str] = (), used: Collection[str] = ()) -> list[str]:
        """Return one line for each tool of a server that may help with the user's message, except lines in `without`.

        `used` are servers that were called before.
        """
        if not self._put:
            return []
        if self._index is None:
            from pinfold.tools.search import Index

            there = (tool for tools in self._put.values() for tool in tools)
            self._index = Index(tool for tool in there if self._is_on(tool.name) and not self._is_shown(tool.name))
        return self._index.fitting(text, FITTING, without=without, used=used)

    def _is_shown(self, name: str) -> bool:
        return self._is_on(name) and (self._shown is None or _matches(name, self._shown))

    def get(self, name: str) -> AnyTool | None:
        return self._every.get(name) if self._is_on(name) else None

    def action(self, tool: str, args: Json) -> Action:
        """Build the action for a call, with corrected names and arguments.

        A call that makes no sense stays a call: it fails with a reason when it runs.
        """
        name, meant = self._resolve_call(tool, args)
        match name, meant:
            case PYTHON.name, {"code": str(code), **rest} if not rest and self._is_on(name):
                return RunCell(code=code)
            case _:
                return CallTool(tool=name, args=meant)

    def _resolve_call(self, name: str, args: Json) -> tuple[str, Json]:
        """Correct name and arguments. A disabled tool keeps its name: it is never taken for another tool."""
        if name not in self._every:
            name, args = split_verb(name, args)
        found = [(one, self._meant_args(one, args)) for one in meant_tools(name, self._every)]
        match found:
            case []:
                return name, args
            case [one]:
                return one
            case _:
                fit = [(one, given) for one, given in found if self._fits(one, given)]
                return fit[0] if len(fit) == 1 else (name, args)

    def _arguments(self, name: str) -> tuple[Argument, ...] | None:
        """Return the tool's arguments; None if it is disabled."""
        tool = self.get(name)
        return _CODE if name == PYTHON.name else tool.arguments if tool else None

    def _meant_args(self, name: str, args: Json) -> Json:
        tool, arguments = self.get(name), self._arguments(name)
        return args if arguments is None else meant_args(name, arguments, (tool and tool.aliases) or {}, args)

    def _fits(self, name: str, args: Json) -> bool:
        arguments = self._arguments(name) or ()
        needed = {argument.name for argument in arguments if argument.is_required}
        return isinstance(args, Mapping) and needed <= args.keys() <= {one.name for one in arguments}

    async def call(self, name: str, args: Json) -> Result:
        """Call a tool and return its result. Raises ToolFailed with a message for the model.

        Names are not corrected here: a call that policy judged under one name must not run under another.
        """
        tool = self.get(name)
        if tool is None:
            raise ToolFailed(self._why_not(name))
        arguments = tool.check_arguments(args)
        key = _cache_key(name, args) if tool.cache else None
        if key in self._cache:
            return self._cache[key]
        result = await run(tool, arguments)
        if tool.trust == "untrusted":
            result = replace(result, untrusted=True)
        if key:
            # A call answered from the cache sends nothing.
            self._cache[key] = replace(result, sent=(), notices=())
            while len(self._cache) > _CACHED or sum(len(one.text) for one in self._cache.values()) > _CACHED_CHARS:
                del self._cache[next(iter(self._cache))]
        return result

    def _why_not(self, name: str) -> str:
        if name in self._every and not self._is_on(name):
            return f"{name} is switched off in this session; do without it"
        if name == PYTHON.name:
            return 'wrong arguments for python: it takes {"code": "..."} and nothing else'
        return _no_such(name, self.names)


def _cache_key(name: str, args: Json) -> str | None:
    try:
        return json.dumps([name, args], sort_keys=True)
    except (TypeError, ValueError):
        return None


def _briefly(tool: AnyTool) -> ToolSchema:
    """Drop what the model does not need, since the schema costs tokens in every request."""
    schema, untold = tool.schema, tool.untold
    parameters = {key: value for key, value in schema.parameters.items() if key != "additionalProperties"}
    properties = cast("Mapping[str, Mapping[str, Json]]", parameters.get("properties", {}))
    parameters["properties"] = {
        name: {key: value for key, value in drop_null(one).items() if f"{name}.{key}" not in untold}
        for name, one in properties.items()
        if name not in untold
    }
    return replace(schema, description=tool.summary or schema.description, parameters=parameters)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _no_such(name: str, known: Iterable[str]) -> str:
    names = tuple(known)
    near = next((one for one in other_names(name) if one in names), "") or closest(name[:64], names)
    there = f"did you mean {near}?" if near else f"there are {join_names(names, _NAMED)}"
    return f"no tool is called {name[:64]!r}; {there}"


GROUP = "pinfold.tools"


def find_entry_points() -> Mapping[str, EntryPoint]:
    """Return the entry points by name, without importing them."""
    if not _is_any():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _is_any() -> bool:
    """True if a package declares such an entry point. `importlib.metadata` takes ten times as long to find none."""
    files = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    with suppress(OSError):
        return any(f"[{GROUP}]".encode() in file.read_bytes() for file in files)
    return True


def load_plugins() -> Loaded:
    """Load the tools of all entry points; leave out and report broken ones."""
    tools: list[AnyTool] = []
    faults: list[str] = []
    for _, point in sorted(find_entry_points().items()):
        try:
            tools += _as_tools(point.load())
        except BadTool as fault:
            faults.append(_describe_fault(point, str(fault)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another package's fault must not stop Pinfold
            faults.append(_describe_fault(point, f"{type(error).__name__}: {error}"))
    return Loaded(tuple(tools), tuple(faults))


def _as_tools(loaded: object) -> list[AnyTool]:
    if isinstance(loaded, Tool) or callable(loaded):
        return [as_tool(cast("Callable[..., Any]", loaded))]
    if isinstance(loaded, Iterable) and not isinstance(loaded, str | bytes | Mapping):
        return [tool for one in cast("Iterable[object]", loaded) for tool in _as_tools(one)]
    raise BadTool(f"it is a {type(cast('object', loaded)).__name__}, not a tool, a function or a list of them")


def _describe_fault(point: EntryPoint, why: str) -> str:
    package = point.dist.name if point.dist else point.module
    return f"the tool {point.name!r} of {package} is left out: {first_line(why)}"
