"""Turns a function into a skill: cut out, checked, tried in a fresh sandbox. The user sees it before it is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from pathlib import PurePath
from typing import Any, cast

import anyio
from anyio import CancelScope, to_thread
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.paths import write_whole
from pinfold.app.trust.skills import Skill, skills_folder
from pinfold.events import Json
from pinfold.sandbox import CommandOutcome, Limits, Provider, Session, Spec
from pinfold.sandbox.kernel.folders import TemporaryFolder
from pinfold.sandbox.providers.auto import Auto
from pinfold.text import cap_text, first_line, join_names, redact
from pinfold.tools import AnyTool, BadCall, BadTool, Result, Tool
from pinfold.tools.builtin.programs import ask
from pinfold.tools.ports import Inside
from pinfold.tools.skills.function_slice import EFFECTS, Effects, check_source, slice_function
from pinfold.tools.skills.recorded_calls import (
    Cell,
    RecordedCall,
    calls_in_cells,
    calls_in_docstring,
    read_calls,
    write_calls,
)
from pinfold.tools.skills.signature import Signature, read_signature
from pinfold.tools.skills.skill_file import SKILL, SkillFile, cut_line, format_skill

SERVER = "skills"
TOOL = "pinfold-tool"
FUNCTION = "pinfold-function"
CALL = "pinfold-call"
_EFFECTS = "pinfold-effects"
"""Keys of a promoted skill's metadata."""
CALLS = "tests/calls.json"
_EFFECT_WORDS: Mapping[Effects, str] = {
    "none": "none; it runs in a sandbox of its own, without network",
    "files": "reads and writes files of the workspace; it runs in the session's sandbox",
}
_SHOWN = 200
"""Longest call in a question, in characters."""
_DESCRIPTION = 500
_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")


MEMORY = 1 << 30
"""Memory limit of a sandbox in which functions of skills run."""
CALL_S = 30.0


class SkillSandbox:
    """A sandbox apart from the session's: no network, none of the user's files, nothing of the caller.

    It starts with its first command. Each command is a new process; only with `writable` can it leave files behind.
    """

    def __init__(self, provider: Provider, files: Mapping[str, bytes] | None = None, *, writable: bool = False) -> None:
        self._provider = provider
        self._files = files or {}
        self._writable = writable
        self._folder: TemporaryFolder | None = None
        self._session: Session | None = None
        self._one_at_a_time = anyio.Lock()

    async def command(self, argv: Sequence[str], **given: Any) -> CommandOutcome:
        """Run a program. Raises BadCall if the provider cannot isolate it, SandboxUnavailable."""
        async with self._one_at_a_time:
            session = self._session = self._session or await self._open()
            given.setdefault("env", {"PATH": "/usr/bin:/bin"})
            return await session.command(argv, **given)

    async def _open(self) -> Session:
        folder = self._folder = self._folder or TemporaryFolder("workspace")
        for name, data in self._files.items():
            (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder.path / name, data)
        spec = Spec(workspace=folder.path, writable=self._writable, limits=Limits(memory_bytes=MEMORY))
        provider = await self._provider.resolve(spec) if isinstance(self._provider, Auto) else self._provider
        can = provider.capabilities
        if not can.isolated or not can.commands:
            raise BadCall(f"functions of skills run in a sandbox only, and {provider.name} is none for them")
        return await provider.open(spec)

    async def aclose(self) -> None:
        with CancelScope(shield=True):
            if self._session is not None:
                session, self._session = self._session, None
                await session.close()
            if self._folder is not None:
                await to_thread.run_sync(self._folder.remove)


class Request(Struct, frozen=True, kw_only=True):
    """A request to promote a function."""

    source: str = ""
    """Source of the whole file."""
    file: str
    function: str
    tool: str
    effects: str = "none"
    examples: Sequence[Json] = ()
    cells: Sequence[Cell] = ()
    """Cells of the session."""


class Promotion(Struct, frozen=True, kw_only=True):
    """A skill that was checked and tried; nothing is written yet."""

    request: Request
    asked: Request | None = None
    """The request as it was in the call, without source and cells."""
    skill: str
    tool: str
    files: Mapping[str, bytes]
    shows: str
    """All that the user must see to agree."""


async def prepare_promotion(request: Request, taken: Collection[str], provider: Provider) -> Promotion:
    """Check and try the function. Raises BadTool: the reason why it cannot be promoted, and what to change."""
    name, tool = request.function, request.tool
    if not _TOOL_NAME.fullmatch(tool):
        raise BadTool(f"{tool!r} cannot be a tool's name: use up to 60 letters, digits and underscores")
    if tool in taken:
        raise BadTool(f"there is already a tool called {tool!r}; choose another name")
    if request.effects not in EFFECTS:
        raise BadTool(f"effects is one of {', '.join(EFFECTS)}, not {request.effects!r}")
    effects: Effects = request.effects
    cut = slice_function(request.source, name, request.file)
    check_source(cut.source, effects)
    signature = read_signature(cut.function)
    tests = await _try_calls(_collect_calls(request, signature), name, cut.source, effects, provider)
    skill = tool.strip("_").replace("_", "-").lower()
    while "--" in skill:
        skill = skill.replace("--", "-")
    if (skills_folder() / skill).exists():
        raise BadTool(f"you already have a skill {skill!r}; choose another name for the tool")
    script = f"scripts/{tool}.py"
    described = SkillFile(
        name=skill,
        description=cap_text(" ".join(signature.described.text.split()), _DESCRIPTION),
        metadata={TOOL: tool, FUNCTION: name, CALL: _short_call(tool, signature), _EFFECTS: effects},
        body=_body(tool, signature, script),
    )
    files = {SKILL: format_skill(described).encode(), script: cut.source.encode(), CALLS: write_calls(tests)}
    if redact(files[CALLS].decode()) != files[CALLS].decode():
        raise BadTool("a recorded call holds what looks like a secret; call it with another value")
    along = f" It takes along {join_names(cut.needs, 12)}." if cut.needs else ""
    tried = [f"  {_show_call(tool, one.args)} = {_short(one.returns)}  ({one.origin})" for one in tests]
    shows = "\n".join(
        [
            f"A new tool {tool}{signature.written}, from {request.file}, kept as your skill {skill!r}.{along}",
            f"Effects: {_EFFECT_WORDS[effects]}.",
            "",
            cut.source.rstrip(),
            "",
            f"Calls tried in a fresh sandbox ({len(tests)}):",
            *tried,
        ]
    )
    return Promotion(request=request, skill=skill, tool=tool, files=files, shows=shows)


def _short_call(tool: str, signature: Signature) -> str:
    parts = [one.name if one.is_required else f"{one.name}={one.default!r}" for one in signature.arguments]
    return f"{tool}({', '.join(parts)})"


def _body(tool: str, signature: Signature, script: str) -> str:
    call = f"A function, called as the tool `{tool}` or from code: `from servers.skills import {tool}`."
    files = f"Its source is `{script}`. `{CALLS}` holds calls with their results, which `pinfold skill test` runs."
    return f"# {tool}\n\n{call}\n\n```python\n{tool}{signature.written}\n```\n\n{signature.docstring}\n\n{files}"


def _collect_calls(request: Request, signature: Signature) -> list[RecordedCall]:
    parameters = tuple(one.name for one in signature.arguments)
    needed = {one.name for one in signature.arguments if one.is_required}
    calls = calls_in_docstring(signature.docstring, request.function, parameters)
    calls += calls_in_cells(request.cells, request.function, parameters, PurePath(request.file).name)
    for example in request.examples:
        if not isinstance(example, dict):
            raise BadTool(
                f"an example is an object of arguments such as {{{parameters[:1] or 'x'}: ...}}, not {example!r}"
            )
        calls.append(RecordedCall(args=cast("dict[str, Json]", example), origin="an example"))
    for call in calls:
        if not needed <= call.args.keys() <= set(parameters):
            raise BadTool(
                f"{_show_call(request.function, call.args)} of {call.origin} does not fit: it takes {join_names(parameters, 12)}"
            )
    if not calls:
        example = "{" + ", ".join(f'"{name}": ...' for name in parameters) + "}"
        raise BadTool(
            f"no call of {request.function} with plain values was recorded; call it in a cell first, add a `>>>` "
            f"example to its docstring, or give one: examples=[{example}] (--example '{example}' on the command line)"
        )
    return calls


async def _try_calls(
    calls: Sequence[RecordedCall], name: str, source: str, effects: Effects, provider: Provider
) -> list[RecordedCall]:
    """Return the calls with their results. Raises BadTool for the first that fails or gives a different result."""
    given = [one.args for one in calls]
    try:
        async with aclosing(SkillSandbox(provider, writable=effects == "files")) as sandbox:
            outcomes = await call_function(sandbox, source, name, given, effects, repeat=effects == "none")
    except BadCall as error:
        raise BadTool(f"{name} {error}") from error
    tried: list[RecordedCall] = []
    for call, outcome in zip(calls, outcomes, strict=True):
        shown = _show_call(name, call.args)
        match outcome:
            case {"failed": str(why)}:
                raise BadTool(f"{shown} of {call.origin} fails in a fresh sandbox: {why}")
            case {"varies": True}:
                raise BadTool(
                    f"{shown} of {call.origin} gives another result each time; make it depend on its arguments only"
                )
            case {"value": value, "shown": str(text)} if call.shown in (None, text):
                tried.append(replace(call, returns=value, shown=None))
            case _:
                gives = first_line(str(outcome.get("shown")), _SHOWN)
                raise BadTool(
                    f"{shown} gave {first_line(call.shown or '', _SHOWN)} in {call.origin}, and gives {gives} in a fresh sandbox; "
                    "if you changed the function since, call it again"
                )
    return tried


async def call_function(
    inside: Inside,
    source: str,
    function: str,
    calls: Sequence[Mapping[str, Json]],
    effects: Effects,
    *,
    repeat: bool = False,
) -> list[dict[str, Json]]:
    """Return the outcome of each call. Raises BadCall if it cannot run, or had effects that it did not declare."""
    given = {"source": source, "function": function, "calls": list(calls), "repeat": repeat}
    reply = await ask(inside, "function_runner", "call", given, timeout_s=CALL_S)
    seen = reply.get("touched")
    for touched in cast("list[Json]", seen) if isinstance(seen, list) else []:
        kind, _, what = str(touched).partition(" ")
        if effects == "none" or kind not in ("read", "write"):
            words = {"read": "reads", "write": "writes", "process": "starts a process:"}.get(kind, "tries the network:")
            raise BadCall(f"{words} {first_line(what, _SHOWN)}, which its effects ({effects}) do not declare")
    outcomes = reply.get("outcomes")
    found = cast("list[Json]", outcomes) if isinstance(outcomes, list) else []
    if len(found) != len(calls) or not all(isinstance(one, dict) for one in found):
        raise BadCall("gave no answer that can be read")
    return cast("list[dict[str, Json]]", found)


def _show_call(name: str, args: Mapping[str, Json]) -> str:
    return first_line(f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})", _SHOWN)


def _short(value: Json) -> str:
    return first_line(json.dumps(value, ensure_ascii=False), _SHOWN)


def skill_tool(skill: Skill, alone: Inside, inside: Inside) -> AnyTool | None:
    """Return the function of a promoted skill as a tool; None for other skills. Raises BadTool.

    A function without effects runs in `alone`; others run in `inside`, where the workspace is.
    """
    metadata = skill.described.metadata
    if TOOL not in metadata:
        return None
    tool, name, effects = metadata[TOOL], metadata.get(FUNCTION, metadata[TOOL]), metadata.get(_EFFECTS, "none")
    script = skill.files.get(f"scripts/{tool}.py")
    if script is None or effects not in EFFECTS or not _TOOL_NAME.fullmatch(tool):
        raise BadTool(f"the skill {skill.name} has no function that can be a tool; remove it and promote it again")
    cut = slice_function(script.decode("utf-8", "replace"), name, skill.name)
    signature = read_signature(cut.function)
    place = alone if effects == "none" else inside
    described = signature.described
    words = " ".join([*described.text.split(), *described.parameters.values()])

    async def call(**args: Json) -> Result:
        (outcome,) = await call_function(place, cut.source, name, [args], effects)
        match outcome:
            case {"value": value}:
                return Result(
                    text=value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), value=value
                )
            case _:
                raise BadCall(str(outcome.get("failed", "gave no answer that can be read")))

    return Tool(
        function=call,
        name=tool,
        description=described.text,
        effect="pure" if effects == "none" else "once",
        timeout_s=CALL_S + 30,
        parallel_safe=effects == "none",
        parameters=signature.parameters,
        takes=signature.arguments,
        reach="nothing" if effects == "none" else "workspace",
        server=SERVER,
        returns=signature.returns,
        summary=cut_line(" ".join(described.text.split())),
        untold=() if cut_line(words) == words else tuple(f"{one.name}.description" for one in signature.arguments),
    )


async def run_skill_tests(skill: Skill, provider: Provider) -> list[tuple[str, str]]:
    """Run the tests of a skill. Returns each with its fault, empty if it passed. Raises BadTool, BadCall."""
    metadata = skill.described.metadata
    tested: list[tuple[str, str]] = []
    if TOOL in metadata and CALLS in skill.files:
        calls = read_calls(skill.files[CALLS], f"{skill.name}/{CALLS}")
        async with aclosing(SkillSandbox(provider, writable=metadata.get(_EFFECTS) == "files")) as sandbox:
            tool = skill_tool(skill, sandbox, sandbox)
            assert tool is not None
            tested += [(_show_call(tool.name, call.args), await _test_call(tool, call)) for call in calls]
    async with aclosing(SkillSandbox(provider, skill.files)) as sandbox:
        for path in sorted(skill.files):
            if TOOL not in metadata and path.startswith("scripts/") and path.endswith(".py"):
                ran = await sandbox.command(["python3", "-B", path, "--help"], timeout_s=CALL_S)
                said = ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
                tested.append((f"{path} --help", "" if ran.status == "ok" else first_line(said, _SHOWN) or ran.status))
    return tested


async def _test_call(tool: AnyTool, call: RecordedCall) -> str:
    try:
        result: Result = await tool.function(**call.args)
    except BadCall as error:
        return str(error)
    return "" if result.value == call.returns else f"gives {_short(result.value)} instead of {_short(call.returns)}"
