"""Extracts a function with everything it needs from its file, and checks that the source uses no forbidden names."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from pinfold.text import join_names, redact
from pinfold.tools.results import BadTool

_GIVEN = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CHANGES = frozenset(
    (
        *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"),
        *("add", "discard", "update", "setdefault"),
    )
)
"""Methods that change the object they are called on."""


class FunctionSlice(Struct, frozen=True, kw_only=True):
    source: str
    function: ast.FunctionDef | ast.AsyncFunctionDef
    needs: tuple[str, ...]
    """Other names of the file that were extracted with it."""


def slice_function(source: str, name: str, file: str) -> FunctionSlice:
    """Extract a function. Raises BadTool with why it cannot stand alone, and what to change."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        where = f" line {error.lineno}:" if isinstance(error, SyntaxError) and error.lineno else ""
        words = error.msg if isinstance(error, SyntaxError) else str(error)
        raise BadTool(f"{file}:{where} it is not valid Python: {words}") from error
    bound = _bindings(tree)
    function = next((one for one in bound.get(name, ()) if isinstance(one, _DEFINITIONS)), None)
    if function is None or isinstance(function, ast.ClassDef):
        raise BadTool(_why_not_found(tree, name, file))
    needed: dict[str, ast.stmt] = {}
    _collect(name, bound, needed, source, file)
    _refuse_changed_globals(needed)
    kept = [_import_of(one, needed) for one in dict.fromkeys(needed.values())]
    future = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    ordered = sorted({*future, *kept}, key=lambda one: (one.lineno, one.col_offset))
    text = _join(ordered, source)
    return FunctionSlice(source=text, function=function, needs=tuple(one for one in needed if one != name))


def _why_not_found(tree: ast.Module, name: str, file: str) -> str:
    for outer in ast.walk(tree):
        if isinstance(outer, _DEFINITIONS):
            for inner in ast.walk(outer):
                if inner is not outer and isinstance(inner, _DEFINITIONS) and inner.name == name:
                    return f"{name} lies inside {outer.name}; move it to the top level of {file}"
    names = [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
    return f"{file} has no function {name!r}" + (f"; it has {join_names(names, 8)}" if names else "")


def _bindings(tree: ast.Module) -> Mapping[str, list[ast.stmt]]:
    """Map each top-level name to the statements that bind it, also within `if`, `for` and the like."""
    bound: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in _bound_by(statement):
            bound.setdefault(name, []).append(statement)
    return bound


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((one.asname or one.name).partition(".")[0] for one in names)
        case _:
            # Nested scopes are skipped: names bound inside a function are not bound here.
            for node in _walk_without_scopes(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                    yield node.id
                elif isinstance(node, (*_DEFINITIONS, *_IMPORTS)):
                    yield from _bound_by(node)


def _walk_without_scopes(node: ast.AST) -> Iterator[ast.AST]:
    for below in ast.iter_child_nodes(node):
        yield below
        if not isinstance(below, (*_DEFINITIONS, ast.Lambda)):
            yield from _walk_without_scopes(below)


def _collect(
    name: str, bound: Mapping[str, list[ast.stmt]], needed: dict[str, ast.stmt], source: str, file: str
) -> None:
    """Add to `needed` the statement that binds a name and, recursively, those of the names it uses."""
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name in needed or (name in _GIVEN and name not in bound):
            continue
        statements = bound.get(name, [])
        if not statements:
            stars = "*" in bound
            why = "it may come from `import *`; import it by name" if stars else "define it there, or pass it in"
            raise BadTool(f"{name!r} is used and not defined in {file}; {why}")
        statement = statements[0]
        if len(statements) > 1 or isinstance(statement, ast.AugAssign | ast.Delete):
            lines = join_names([str(one.lineno) for one in statements], 4)
            raise BadTool(f"{name!r} is bound more than once in {file} (lines {lines}); bind it once")
        if not isinstance(statement, (*_DEFINITIONS, *_IMPORTS, ast.Assign, ast.AnnAssign)):
            raise BadTool(f"{name!r} is bound inside a larger statement at line {statement.lineno}; bind it by itself")
        if isinstance(statement, ast.ImportFrom) and statement.level:
            raise BadTool(f"{name!r} comes by a relative import; define it in {file} itself")
        needed[name] = statement
        waiting += sorted(_used_by(statement, source))


def _used_by(statement: ast.stmt, source: str) -> set[str]:
    """Return the module-level names that a statement reads."""
    if isinstance(statement, _IMPORTS):
        return set()
    top = symtable.symtable(_join([statement], source), "<function>", "exec")
    used = {one.get_name() for one in top.get_symbols() if one.is_referenced()}
    waiting = list(top.get_children())
    while waiting:
        table = waiting.pop()
        used |= {one.get_name() for one in table.get_symbols() if one.is_global()}
        waiting += table.get_children()
    return used


def _refuse_changed_globals(needed: Mapping[str, ast.stmt]) -> None:
    """Refuse functions that change globals: a call must not affect later ones."""
    names = {name for name, one in needed.items() if isinstance(one, ast.Assign | ast.AnnAssign)}
    for statement in {*needed.values()}:
        if not isinstance(statement, _DEFINITIONS):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Global):
                where = f"(line {node.lineno})"
                raise BadTool(f"{statement.name} changes the global {node.names[0]!r} {where}; return it instead")
            target = _changed_variable(node)
            if target in names and target not in _locals(statement):
                where = f"(line {getattr(node, 'lineno', 0)})"
                words = f"{statement.name} changes {target!r}, which belongs to the module {where}"
                raise BadTool(f"{words}; make it a local variable")


def _changed_variable(node: ast.AST) -> str:
    """Return the name of the variable a node changes in place; empty if it changes none."""
    match node:
        case (
            ast.Subscript(value=value, ctx=ast.Store() | ast.Del())
            | ast.Attribute(value=value, ctx=ast.Store() | ast.Del())
        ):
            changed = value
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _CHANGES:
            changed = value
        case _:
            return ""
    while isinstance(changed, ast.Subscript | ast.Attribute):
        changed = changed.value
    return changed.id if isinstance(changed, ast.Name) else ""


def _locals(function: ast.AST) -> set[str]:
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def _import_of(statement: ast.stmt, needed: Mapping[str, ast.stmt]) -> ast.stmt:
    """Drop unused names from an import; return other statements unchanged."""
    if not isinstance(statement, _IMPORTS):
        return statement
    mine = {name for name, one in needed.items() if one is statement}
    names = [one for one in statement.names if (one.asname or one.name).partition(".")[0] in mine]
    cut = ast.Import(names) if isinstance(statement, ast.Import) else ast.ImportFrom(statement.module, names, 0)
    return ast.copy_location(cut, statement)


def _join(statements: list[ast.stmt], source: str) -> str:
    """Join the source of the statements, with two empty lines around definitions."""
    parts: list[str] = []
    lines = source.splitlines(keepends=True)
    for one in statements:
        if isinstance(one, _IMPORTS):
            text = ast.unparse(one)
        elif isinstance(one, _DEFINITIONS):
            first = min([one.lineno, *(mark.lineno for mark in one.decorator_list)])
            text = "".join(lines[first - 1 : one.end_lineno]).rstrip()
        else:
            text = ast.get_source_segment(source, one) or ast.unparse(one)
        is_apart = bool(parts) and (isinstance(one, _DEFINITIONS) or parts[-1].startswith(("def ", "class ", "@")))
        parts.append(f"\n\n{text}" if is_apart else text)
    return "\n".join(parts) + "\n"


# Names the source must not use. The sandbox enforces this at run time; here the author is told the reason.

Effects: TypeAlias = Literal["none", "files"]
"""`none`: the result depends on the arguments alone. `files`: it also reads and writes files of the workspace."""
EFFECTS: tuple[Effects, ...] = get_args(Effects)
MAX_SOURCE = 20_000
"""Characters; the user must be able to read the source before agreeing to it."""

_NETWORK = (
    *("socket", "ssl", "http.client", "http.server", "urllib.request", "urllib3", "requests", "httpx", "httpx2"),
    *("aiohttp", "ftplib", "smtplib", "imaplib", "poplib", "xmlrpc", "websockets", "asyncio.open_connection"),
)
_PROCESSES = (
    *("subprocess", "multiprocessing", "pty", "os.system", "os.popen", "os.fork", "os.forkpty", "os.kill"),
    *("os.execl", "os.execv", "os.execve", "os.execvp", "os.spawnl", "os.spawnv", "os.posix_spawn", "signal"),
)
_ENVIRONMENT = ("os.environ", "os.environb", "os.getenv", "os.getenvb", "getpass", "pwd")
_HIDDEN = (
    *("eval", "exec", "compile", "__import__", "globals", "breakpoint", "input", "builtins", "importlib", "runpy"),
    *("ctypes", "cffi", "code", "codeop", "pickle", "marshal", "gc", "sys.modules", "sys._getframe", "sys.settrace"),
)
_FILES = (
    *("open", "io.open", "io.FileIO", "os.open", "os.remove", "os.unlink", "os.rename", "os.replace", "os.mkdir"),
    *("os.makedirs", "os.rmdir", "os.listdir", "os.scandir", "os.walk", "os.chmod", "os.symlink", "os.link"),
    *("shutil", "tempfile", "glob", "sqlite3", "shelve"),
)
_REASONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (_NETWORK, "reaches the network; fetch outside and pass the data in"),
    (_PROCESSES, "starts or signals processes; do that outside"),
    (_ENVIRONMENT, "reads the environment; pass the value in"),
    (_HIDDEN, "hides what it does from a reader; write it out"),
    (_FILES, "opens files; declare effects=files, or pass the content in"),
)
_DUNDERS = frozenset({"__init__", "__name__", "__len__", "__doc__", "__post_init__", "__version__"})


def check_source(source: str, effects: Effects) -> None:
    """Check the source before the user is asked to agree to it. Raises BadTool with the reason if it is refused."""
    if len(source) > MAX_SOURCE:
        too_long = f"the function and what it needs have {len(source):,} characters; {MAX_SOURCE:,} is the most"
        raise BadTool(f"{too_long}, because a person has to read them")
    if redact(source) != source:
        raise BadTool("the source holds what looks like a secret; take it out and pass it in")
    tree = ast.parse(source)
    for name, line in _names_used(tree):
        for listed, reason in _REASONS:
            if (listed is _FILES and effects == "files") or not _is_listed(name, listed):
                continue
            raise BadTool(f"line {line}: {name} {reason}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("__") and node.attr not in _DUNDERS:
            raise BadTool(f"line {node.lineno}: {node.attr} reaches into the interpreter; write it another way")


def _is_listed(name: str, listed: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in listed)


def _names_used(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield imports and names with their line, in full: after `from os import environ as e`, `e` is `os.environ`."""
    means: dict[str, str] = {}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for one in names:
                    top = one.name.partition(".")[0]
                    means[one.asname or top] = one.name if one.asname else top
                    yield one.name, node.lineno
            case ast.ImportFrom(module=module, names=names, level=level):
                if level:
                    raise BadTool(f"line {node.lineno}: a relative import cannot be taken along; define it in the file")
                for one in names:
                    means[one.asname or one.name] = f"{module}.{one.name}"
                    yield f"{module}.{one.name}", node.lineno
            case _:
                pass
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and (name := _full_name(node, means)):
            is_own = isinstance(node, ast.Name) and node.id in stored and node.id not in means
            if not is_own:
                yield name, node.lineno


def _full_name(node: ast.expr, means: Mapping[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    root = means.get(node.id, "" if parts else node.id)
    return ".".join([root, *reversed(parts)]) if root else ""
