"""The multi-turn base set of the Berkeley leaderboard, whole, from the user's own copy. Nothing of it is in Pinfold.

Its programs are third-party code, so they run in a sandbox of their own; tools here pass each call on to it. Ground truth
is what the scripted model does: the calls of a turn as one cell.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from bench.tokens.baselines import weigh_json_calls
from bench.tokens.measurement import Row, hints_and_search
from bench.tokens.o200k import tokens
from bench.tokens.player import play
from bench.tokens.report import Report, Rule, ToolCount
from bench.tokens.script import plan_moves
from bench.tokens.task import Task, Turn
from bench.tokens.weight import tool_text

from pinfold.app.errors import ConfigError
from pinfold.events import Json
from pinfold.sandbox import Session, open_session
from pinfold.tools import BadCall, Tool
from pinfold.tools.arguments import REQUIRED, Argument

_SET = "BFCL_v4_multi_turn_base.json"
_CLASSES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""With the file each is in, which is the name of its server here."""
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
_LOOKS = re.compile(
    r"get_|list_|view_|find|search|check|display|estimate|calculate|compute|compare|filter|verify|retrieve|track|"
    r"ls|cat|tail|head|grep|diff|wc|sort|du|pwd|read_|mean|standard|liter_|gallon_|imperial|si_unit|percentage|logarithm"
)
"""Functions by their names whose result is what the user wants to hear; of others, that it was done."""
_QUOTED = 120
"""Characters of a result that an answer quotes."""
_SETUP = """
import sys, types, json, copy, importlib
root = {root!r}
parts = ("bfcl_eval", "bfcl_eval.eval_checker", "bfcl_eval.eval_checker.multi_turn_eval", "bfcl_eval.eval_checker.multi_turn_eval.func_source_code")
for name in parts:
    module = types.ModuleType(name)
    module.__path__ = [root + "/" + "/".join(name.split(".")[1:])]
    sys.modules[name] = module
try:
    import mpmath
except ImportError:
    import math
    mpmath = types.ModuleType("mpmath")
    mpmath.mp, mpmath.log = types.SimpleNamespace(dps=15), math.log
    sys.modules["mpmath"] = mpmath
def begin(classes, config):
    global made
    made = {{}}
    for kind, file in classes.items():
        made[file] = getattr(importlib.import_module(parts[-1] + "." + file), kind)()
        if hasattr(made[file], "_load_scenario"):
            made[file]._load_scenario(copy.deepcopy(config.get(kind, {{}})), long_context=False)
def perform(file, name, args):
    return json.dumps(getattr(made[file], name)(**args), default=str)
"""
"""Names the packages without running their `__init__`, which would import what only the leaderboard needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    server: str
    name: str
    declared: Json

    @property
    def parameters(self) -> list[str]:
        return list(self.declared["parameters"]["properties"])


class _Apis:
    """The programs of the set, in their sandbox."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def begin(self, entry: Json) -> None:
        classes = {kind: _CLASSES[kind] for kind in entry["involved_classes"]}
        await self._run(f"begin({classes!r}, {entry['initial_config']!r})")

    async def perform(self, function: _Function, **args: Json) -> Json:
        given = {name: value for name, value in args.items() if value is not None}
        return json.loads(await self._run(f"print(perform({function.server!r}, {function.name!r}, {given!r}))"))

    async def _run(self, code: str) -> str:
        outcome = await self._session.run(code)
        if outcome.status != "ok":
            raise BadCall((outcome.error or outcome.status).strip().splitlines()[-1])
        return outcome.stdout


async def play_set(folder: Path, progress: Callable[[str, int, int], None], rule: Rule = "closed") -> Report:
    root = _root(folder)
    entries = [json.loads(line) for line in _lines(root / "data" / _SET)]
    truths = {one["id"]: one["ground_truth"] for one in map(json.loads, _lines(root / "data/possible_answer" / _SET))}
    functions = [
        _Function(server=file, name=declared["name"], declared=declared)
        for file in _CLASSES.values()
        for declared in map(json.loads, _lines(root / f"data/multi_turn_func_doc/{file}.json"))
    ]
    rows: list[Row] = []
    async with open_session(data=[f"bfcl={root}"]) as session:
        apis = _Apis(session)
        setup = await session.run(_SETUP.format(root="/mnt/datasets/bfcl"))
        if setup.status != "ok":
            raise ConfigError(f"the programs in {root} cannot be run: {setup.error}")
        for place, entry in enumerate(entries):
            progress("playing the set", place, len(entries))
            rows.append(await _row(entry, truths[entry["id"]], functions, apis, rule))
    schemas = sum(tokens(tool_text(_tool(one, apis).schema)) for one in functions)
    return Report(rows=rows, sets=("bfcl",), tools={"bfcl": ToolCount(len(functions), schemas)}, rule=rule)


def _root(folder: Path) -> Path:
    for root in (folder, folder / "bfcl_eval", folder / "berkeley-function-call-leaderboard" / "bfcl_eval"):
        if (root / "data" / _SET).is_file():
            return root.resolve()
    raise ConfigError(f"{folder} is no copy of the set: it has no data/{_SET}; give the folder bfcl_eval")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


async def _row(entry: Json, truth: list[list[str]], functions: Sequence[_Function], apis: _Apis, rule: Rule) -> Row:
    left_out = set(entry.get("excluded_function", ()))
    there = [one for one in functions if one.name not in left_out or _is_called(one.name, truth)]
    known = {one.name: one for one in there}
    await apis.begin(entry)
    task = await _task(entry, truth, known, apis)
    tools = [_tool(one, apis) for one in there]
    hints, search = hints_and_search(tools)
    planned = plan_moves(task, tools, hints=hints, search=search, answers=rule == "answered")
    planned = [
        move if calls else replace(move, cells=(), answers=False) for move, calls in zip(planned, truth, strict=True)
    ]
    await apis.begin(entry)
    played = await play(task, planned, tools)
    await apis.begin(entry)
    baselines, _ = await weigh_json_calls(task, played.calls, tools)
    return Row(
        task=entry["id"],
        set="bfcl",
        domain=", ".join(task.servers),
        turns=len(task.turns),
        pinfold=played.weight,
        baselines=baselines,
        problems=tuple(played.problems),
    )


def _is_called(name: str, truth: list[list[str]]) -> bool:
    return any(call.partition("(")[0] == name for calls in truth for call in calls)


async def _task(entry: Json, truth: list[list[str]], known: dict[str, _Function], apis: _Apis) -> Task:
    """The calls of each turn as code, and what they give."""
    turns: list[Turn] = []
    for messages, calls in zip(entry["question"], truth, strict=True):
        asks = "\n".join(message["content"] for message in messages)
        read = [_read(call, known) for call in calls]
        results = [str(await apis.perform(function, **args)) for function, args, _ in read]
        if not read:
            turns.append(Turn(asks=asks, does="print()", says="I need to know more for that."))
        elif _LOOKS.match(read[-1][0].name):
            code = f"print({', '.join(text for *_, text in read)})"
            says = f"{{{len(read) - 1}:.{_QUOTED}}}"
            turns.append(Turn(asks=asks, does=code, says=says, reads=True, facts=tuple(results)))
        else:
            *before, last = (text for *_, text in read)
            code = "\n".join([*before, f"done = {last}", "print(done)"])
            turns.append(Turn(asks=asks, does=code, says="Done: {0}", facts=(results[-1],)))
    servers = tuple(_CLASSES[kind] for kind in entry["involved_classes"])
    return Task(name=entry["id"], domain="", turns=tuple(turns), servers=servers)


def _read(call: str, known: dict[str, _Function]) -> tuple[_Function, dict[str, Json], str]:
    """A call as it is written in the set: function, arguments, and the same as code with all of them by name."""
    match ast.parse(call, mode="eval").body:
        case ast.Call(func=ast.Name(id=name), args=given, keywords=named):
            function = known[name]
            args = dict(zip(function.parameters, map(ast.literal_eval, given), strict=False))
            args |= {one.arg: ast.literal_eval(one.value) for one in named if one.arg}
            listed = ", ".join(f"{key}={value!r}" for key, value in args.items())
            return function, args, f"{name}({listed})"
        case _:
            raise ConfigError(f"the set has a call that cannot be read: {call}")


def _tool(function: _Function, apis: _Apis) -> Tool[..., Any]:
    """With the description as the set gives it to models, for all who are compared."""
    declared = function.declared
    parameters = _schema(declared["parameters"])
    required = parameters.get("required", [])
    return Tool(
        function=partial(apis.perform, function),
        name=f"{function.server}.{function.name}",
        server=function.server,
        description=declared["description"],
        effect="once",
        parameters=parameters,
        returns=_schema(declared["response"]),
        takes=tuple(
            Argument(name=name, default=REQUIRED if name in required else None) for name in function.parameters
        ),
    )


def _schema(declared: Json) -> Json:
    """In the words of JSON schema."""
    match declared:
        case dict():
            given = cast("dict[str, Json]", declared)
            kept = {
                key: _TYPES.get(value, value) if key == "type" and isinstance(value, str) else _schema(value)
                for key, value in given.items()
            }
            if kept.get("type") == "any":
                del kept["type"]
            if kept.get("default") == "None":  # so it is written there, and not meant
                del kept["default"]
            return kept
        case list():
            return [_schema(one) for one in cast("list[Json]", declared)]
        case _:
            return declared
