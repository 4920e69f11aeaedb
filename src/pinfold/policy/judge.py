"""Decides whether an action may run. Pure: no clock, no disk, no network.

The rows below are the table of modes. On top of it: a user's own rule may be stricter, or allow where the table asks; a
grant allows where the table asks; under taint, what could send data out is asked about unless a flow covers it. None of
them allows what the table denies, a protected file, or the host.

Guard rails for the code of cells are off by default. They restrict which modules code imports, and refuse code that
runs text it has decoded. They are not a boundary: code can do more than its syntax shows. The boundary is the sandbox.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from pinfold.events import Action, Allow, Ask, CallTool, Deny, Mode, Reach, RunCell, Verdict
from pinfold.policy.rules import (
    NO_RULES,
    Answer,
    Facts,
    Rules,
    Taint,
    covers,
    flow_of,
    pattern_of,
    script_of,
    shell_facts,
)
from pinfold.policy.shell import Script

_DECODERS = """b16decode b32decode b64decode b85decode a85decode urlsafe_b64decode standard_b64decode decodebytes fromhex unhexlify
    a2b_base64 a2b_hex a2b_uu decompress chr translate"""
_PLAIN_CODECS = frozenset({"utf-8", "utf8", "ascii", "latin-1", "latin1", "utf-16", "cp1252"})
_RUNNERS = frozenset({"exec", "eval", "compile", "__import__", "import_module", "runsource"})
_PROGRAMS = "system popen run call check_call check_output Popen getoutput getstatusoutput"
_STARTERS = r"(exec|spawn)[lv]p?e?|posix_spawnp?|create_subprocess_\w+"
STRICT_IMPORTS = """abc array bisect calendar cmath collections colorsys contextlib copy csv dataclasses datetime decimal difflib enum
    fractions functools glob hashlib heapq html io itertools json math numbers operator pathlib pprint random re
    statistics string textwrap time timeit tomllib typing unicodedata uuid warnings zoneinfo __future__
    numpy pandas sklearn matplotlib scipy pyarrow duckdb polars seaborn statsmodels openpyxl python_calamine PIL
    tabulate IPython mpl_toolkits dateutil pytz servers"""


class Guards(Struct, frozen=True, kw_only=True):
    imports: frozenset[str] | None = None
    """The only modules that code may import, with their submodules; None allows any."""
    decoded: bool = False
    """Refuse code that runs text it has decoded."""


def strict() -> Guards:
    return Guards(imports=frozenset(STRICT_IMPORTS.split()), decoded=True)


def check_code(code: str, guards: Guards) -> str | None:
    """Return why the guards refuse the code, or None."""
    if guards == _NO_GUARDS:
        return None
    try:
        tree = ast.parse(textwrap.dedent(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # IPython syntax, or a syntax error: what cannot be parsed is refused.
        return f"the guards cannot read this code ({type(error).__name__}); write it as plain Python"
    if (allowed := guards.imports) is not None:
        names = (name for node in ast.walk(tree) for name in _find_imports(node))
        if foreign := next((name for name in names if not _is_allowed(name, allowed)), None):
            return f"the guards do not let code import {foreign}"
    if guards.decoded and (name := _runs_decoded(tree)):
        return f"the guards do not let code run decoded text ({name})"
    return None


def _find_imports(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, level=level):
            yield module if module and not level else "a module by its place"
        case ast.Call(func=func, args=args) if _last_name(func) in ("__import__", "import_module"):
            name = args[0].value if args and isinstance(args[0], ast.Constant) else None
            yield name if isinstance(name, str) else "a module whose name is not written out"
        case ast.Name(id="__import__" | "__loader__" | "__builtins__" as name):
            yield name
        case _:
            return


def _is_allowed(name: str, allowed: frozenset[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:count]) in allowed for count in range(1, len(parts) + 1))


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _runs_decoded(tree: ast.AST) -> str | None:
    """Return the function that runs decoded text, or None. Follows assignments, whatever their order and scope."""
    decoded = _decoded_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not _runs(node.func):
            continue
        for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if _holds_decoded(value, decoded):
                return ast.unparse(node.func)
    return None


def _decoded_names(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    while True:
        before = len(names)
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=targets, value=value) if _holds_decoded(value, names):
                    names |= {name for target in targets for name in _names_in(target)}
                case (
                    ast.AnnAssign(target=target, value=ast.expr() as value)
                    | ast.AugAssign(target=target, value=value)
                    | ast.NamedExpr(target=target, value=value)
                    | ast.For(target=target, iter=value)
                ) if _holds_decoded(value, names):
                    names |= _names_in(target)
                case ast.FunctionDef(name=name, body=body):
                    returned = [part.value for item in body for part in ast.walk(item) if isinstance(part, ast.Return)]
                    if any(value is not None and _holds_decoded(value, names) for value in returned):
                        names.add(name)
                case _:
                    pass
        if len(names) == before:
            return names


def _names_in(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _holds_decoded(value: ast.expr, names: set[str]) -> bool:
    for part in ast.walk(value):
        match part:
            case ast.Call() if _decodes(part):
                return True
            case ast.Name(id=name) if name in names:
                return True
            case ast.Subscript(slice=ast.Slice(step=ast.UnaryOp(op=ast.USub()))):
                return True
            case _:
                pass
    return False


def _decodes(call: ast.Call) -> bool:
    name = _last_name(call.func)
    if name in ("bytes", "bytearray"):
        return any(not isinstance(value, ast.Constant | ast.Name | ast.Call) for value in call.args[:1])
    if name == "loads":
        return isinstance(call.func, ast.Attribute) and _last_name(call.func.value) in ("marshal", "pickle", "dill")
    if name != "decode":
        return name in _DECODERS.split()
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    plain = all(isinstance(one, ast.Constant) and one.value in _PLAIN_CODECS for one in given)
    return not plain or (isinstance(call.func, ast.Attribute) and _last_name(call.func.value) == "codecs")


def _runs(func: ast.expr) -> bool:
    name = _last_name(func)
    of = _last_name(func.value) if isinstance(func, ast.Attribute) else None
    if name in _RUNNERS:
        return not (name == "compile" and of in ("re", "regex"))
    if name in _PROGRAMS.split():
        return of in (None, "os", "subprocess", "pty")
    return re.fullmatch(_STARTERS, name) is not None


class Row(Struct, frozen=True):
    name: str
    answers: tuple[Answer, Answer, Answer, Answer]
    """The verdicts in the modes read-only, ask, auto and full."""

    def answer(self, mode: Mode) -> Answer:
        return self.answers[("read-only", "ask", "auto", "full").index(mode)]


CELL = Row("cells run in the sandbox", ("allow", "allow", "allow", "allow"))
PURE = Row("pure tools change nothing", ("allow", "allow", "allow", "allow"))
READING = Row("the command only reads", ("allow", "allow", "allow", "allow"))
WORKSPACE = Row("writes in the workspace", ("deny", "ask", "allow", "allow"))
PROTECTED = Row("protected file", ("deny", "ask", "deny", "ask"))
PACKAGES = Row("package", ("deny", "ask", "ask", "allow"))
LISTED = Row("network, listed host", ("ask", "ask", "allow", "allow"))
NETWORK = Row("network, other host", ("deny", "ask", "ask", "ask"))
OUTSIDE = Row("effects that may not be undone", ("deny", "ask", "ask", "allow"))
HOST = Row("host shell", ("deny", "ask", "deny", "ask"))

_ROWS: Mapping[Reach, Row] = {
    "nothing": PURE,
    "files": PURE,
    "workspace": WORKSPACE,
    "protected": PROTECTED,
    "packages": PACKAGES,
    "network": NETWORK,
    "outside": OUTSIDE,
    "host": HOST,
}
_UNGRANTABLE = (PROTECTED, HOST)
_UNTAINTED = Taint()
_NO_GUARDS = Guards()
_TAINTED = "This session has read your files and outside text, so anything that could send data out needs your OK"


def judge(
    action: Action,
    facts: Facts,
    *,
    mode: Mode,
    grants: Collection[str] = (),
    taint: Taint = _UNTAINTED,
    rules: Rules = NO_RULES,
    guards: Guards = _NO_GUARDS,
) -> Verdict:
    """Return the verdict on an action. `grants` are the patterns the user allowed for the session or always."""
    script = script_of(action)
    row = row_of(action, facts)
    said = rules.say(action, script)
    if said and said.verdict == "deny":
        return Deny(said.reason or f"your rule {said.name!r} is against it", rule=said.name)
    if isinstance(action, RunCell) and (reason := check_code(action.code, guards)):
        return Deny(reason, rule="guards")
    answer = row.answer(mode)
    handed = facts.handed and mode != "read-only" and row not in _UNGRANTABLE
    if answer == "deny" and not handed:
        return Deny(_refusal(action, facts, row, mode, script), rule=row.name)
    flow = flow_of(action, facts)
    may_leave = facts.may_leave or flow in grants
    if taint.is_full and mode != "full" and facts.leaves and not may_leave:
        reason = f"{_reason(action, facts, row, script)}. {_TAINTED}"
        return Ask(reason=reason, pattern=flow, is_flow=True, rule="taint")
    pattern = "" if row in _UNGRANTABLE else pattern_of(action, facts, script)
    if said and said.verdict == "ask":
        reason = said.reason or f"your rule {said.name!r} wants to be asked"
        return Ask(reason=reason, rule=said.name)
    if handed or (may_leave and row not in _UNGRANTABLE and mode != "read-only"):
        return Allow(rule=f"{_tool(action)} was handed to this session" if handed else flow)
    if answer == "allow" and row is not READING:
        return Allow(rule=row.name if row in (CELL, PURE) else f"mode {mode}")
    if row not in _UNGRANTABLE:
        if said:
            return Allow(rule=said.name)
        meant = replace(facts, reach="workspace") if row is READING else facts
        if grant := next((one for one in sorted(grants) if covers(one, action, meant, script)), None):
            return Allow(rule=f"granted: {grant}")
    if row is READING:
        return Allow(rule=row.name, read_only=WORKSPACE.answer(mode) != "allow")
    return Ask(reason=_reason(action, facts, row, script), pattern=pattern, rule=row.name)


def row_of(action: Action, facts: Facts) -> Row:
    """Return the row of the table for an action."""
    if isinstance(action, RunCell):
        return CELL
    if facts.reach == "files" and action.tool == "shell":
        return READING
    if facts.reach == "network" and facts.listed:
        return LISTED
    if facts.reach == "outside" and facts.effect == "pure":
        return PURE
    return _ROWS[facts.reach]


def _tool(action: Action) -> str:
    return action.tool if isinstance(action, CallTool) else "python"


def _reason(action: Action, facts: Facts, row: Row, script: Script | None) -> str:
    """Say what the action would do, for the question to the user."""
    tool, target = _tool(action), facts.target
    if script is not None and row in (WORKSPACE, OUTSIDE):
        return script.dangerous or script.why or "the command writes"
    if row is HOST:
        return f"{tool} would run on this machine itself, outside any sandbox"
    if row is PROTECTED:
        return f"{tool} would change {target or 'a protected file'}, which controls the agent or other programs"
    if row is PACKAGES:
        what = f"the package {target}" if target else "a package"
        return f"{what} would be fetched from the package index and put into the session"
    if row in (LISTED, NETWORK):
        return f"{tool} would reach {target or 'another machine'}"
    if row is WORKSPACE:
        return f"{tool} would change {target or 'files of the workspace'}"
    if row is CELL:
        return "the code may send what it has read to another machine"
    if facts.effect == "pure":
        return f"{tool} runs outside the sandbox; its server says it only reads"
    return f"{tool} runs outside the sandbox; what it does may not be undone"


def _refusal(action: Action, facts: Facts, row: Row, mode: Mode, script: Script | None) -> str:
    if row is PACKAGES and mode == "read-only":
        return "a package would be installed, and the mode is read-only"
    if row is OUTSIDE and script is None and mode == "read-only":
        return f"{_tool(action)} has effects ({facts.effect}), and the mode is read-only"
    return f"{_reason(action, facts, row, script)}, and the mode is {mode}"


def explain(command: str, *, mode: Mode = "ask", rules: Rules = NO_RULES) -> dict[str, object]:
    """Return the verdict on a shell command and its reason, the `commands` in it, and why each is expected to write.

    `held_to_reading`: the command runs with all files read-only; if it needs to change one, the user is asked.
    """
    facts, script = shell_facts(command)
    verdict = judge(CallTool(tool="shell", args={"command": command}), facts, mode=mode, rules=rules)
    return {
        "verdict": type(verdict).__name__.lower(),
        "reason": getattr(verdict, "reason", verdict.rule),
        "rule": verdict.rule,
        "pattern": getattr(verdict, "pattern", ""),
        "mode": mode,
        "held_to_reading": isinstance(verdict, Allow) and verdict.read_only,
        "reads_only": script.reads_only,
        "dangerous": script.dangerous,
        "commands": [
            {"command": " ".join(word.shown for word in one.words), "reads_only": one.reads_only, "why": one.why}
            for one in script.commands
        ],
        "besides": list(script.besides),
        "deletes": list(script.deletes),
    }
