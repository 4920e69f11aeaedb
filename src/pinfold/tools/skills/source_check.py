"""What the source of a promoted function must not name. The sandbox holds it to that when it runs; here is the reason in words."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, get_args

from pinfold.text import redact
from pinfold.tools.results import BadTool

Effects: TypeAlias = Literal["none", "files"]
"""`none`: a result from its arguments alone. `files`: it also reads and writes files of the workspace."""
EFFECTS: tuple[Effects, ...] = get_args(Effects)
MAX_SOURCE = 20_000
"""Characters: a person must be able to read it before they agree."""

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
    """Raises BadTool with the reason why a person should not be asked to agree to this."""
    if len(source) > MAX_SOURCE:
        raise BadTool(
            f"the function and what it needs have {len(source):,} characters; {MAX_SOURCE:,} is the most, for a person "
            "has to read them"
        )
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
            raise BadTool(f"line {node.lineno}: {node.attr} reaches into the interpreter; write it otherwise")


def _is_listed(name: str, listed: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in listed)


def _names_used(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each import and each name, in full: `from os import environ as e` makes `e` mean `os.environ`."""
    means: dict[str, str] = {}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for one in names:
                    means[one.asname or one.name.partition(".")[0]] = (
                        one.name if one.asname else one.name.partition(".")[0]
                    )
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
