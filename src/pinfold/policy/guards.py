"""Guard rails for the code of cells, off unless asked for.

They restrict which modules code imports, and refuse code that runs text it has decoded. They are not a boundary: code has
more ways than its syntax shows. The boundary is the sandbox.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from msgspec import Struct

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
    """The only modules code may import, with what is in them; None for any."""
    decoded: bool = False
    """Refuse code that runs what it has decoded."""

    @property
    def are_on(self) -> bool:
        return self.imports is not None or self.decoded


def strict() -> Guards:
    return Guards(imports=frozenset(STRICT_IMPORTS.split()), decoded=True)


def check_code(code: str, guards: Guards) -> str | None:
    """Why the guards refuse the code, or None."""
    if not guards.are_on:
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
    """Follows decoded text through assignments to names, regardless of order and scopes."""
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
