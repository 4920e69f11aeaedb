"""What a session does with a module's source, with a guest that only writes down what is called."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import types
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HEADER = "_pinfold_guest.servers"
GUEST = """\
from typing import Any

class _Omitted:
    def __repr__(self) -> str:
        return "..."

OMITTED: Any = _Omitted()
calls: list[Any] = []

def call(tool: str, args: dict[str, Any]) -> Any:
    calls.append([tool, {key: value for key, value in args.items() if value is not OMITTED}])
"""
_WATCHED = """\
import builtins, json, sys
ran = []
builtins.canary = lambda *a, **k: ran.append("canary")
import typing, inspect, pydoc, ast, unicodedata
from _pinfold_guest import servers as guest
with open(sys.argv[1], encoding="utf-8") as file:
    source = file.read()
code = compile(source, "servers/hostile.py", "exec", dont_inherit=True)
module = type(sys)("servers.hostile")
sys.modules["servers.hostile"] = module
watching = False
def watch(event, args):
    if watching and not event.startswith(("builtins.id", "object.", "sys._getframe", "code.__new__", "function.__new__")):
        ran.append(f"{event} {args[0]!r:.500}" if args else event)
sys.addaudithook(watch)
watching = True
exec(code, module.__dict__)
names = dir(module)
for name in names:
    function = getattr(module, name)
    signature = inspect.signature(function)
    needed = [p for p in signature.parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    function(*range(len(needed)))
watching = False
reached = 0
for name in names:
    typing.get_type_hints(getattr(module, name))
    reached += len(pydoc.render_doc(getattr(module, name), renderer=pydoc.plaintext)) > 0
print(json.dumps({"ran": ran, "calls": guest.calls, "names": names, "helped": reached}))
"""


def placed(folder: Path, **modules: str) -> Path:
    """A folder from which `servers.NAME` can be imported."""
    for package in ("_pinfold_guest", "servers"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("", encoding="utf-8")
    (folder / "_pinfold_guest" / "servers.py").write_text(GUEST, encoding="utf-8")
    for name, source in modules.items():
        (folder / "servers" / f"{name}.py").write_text(source, encoding="utf-8")
    return folder


def run_apart(folder: Path, source: str) -> dict[str, Any]:
    """What ran in a process of its own while the module was made and each of its functions called."""
    placed(folder)
    (folder / "hostile.py.txt").write_text(source, encoding="utf-8")
    (folder / "watched.py").write_text(_WATCHED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-B", "watched.py", "hostile.py.txt"],
        cwd=folder,
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-2000:]
    return json.loads(done.stdout)


@contextmanager
def imported(source: str, name: str = "servers.here") -> Generator[tuple[Any, list[Any]]]:
    """The module in this process, and the calls it makes. For sources that `assert_only_declares` has seen."""
    guest = types.ModuleType(HEADER)
    exec(GUEST, guest.__dict__)
    module = types.ModuleType(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "_pinfold_guest", types.ModuleType("_pinfold_guest"))
        patch.setitem(sys.modules, HEADER, guest)
        patch.setitem(sys.modules, name, module)
        exec(compile(source, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
        yield module, guest.__dict__["calls"]


_IMPORTS = {"typing", HEADER}
_TYPES = {"str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "Any", "Literal", "NotRequired"}


def assert_only_declares(source: str) -> int:
    """Nothing stands in it but types, and functions that do nothing but call. Returns the number of functions."""
    body = ast.parse(source).body
    functions = 0
    records: set[str] = set()
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                assert statement is body[0]
            case ast.ImportFrom(module=module, level=0):
                assert module in _IMPORTS
            case ast.Assign(targets=[ast.Name("__all__")], value=ast.List(elts=names)):
                assert all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in names)
            case ast.FunctionDef(name="__dir__"):
                assert ast.unparse(statement.body[0]) == "return list(__all__)"
                assert len(statement.body) == 1
            case ast.Assign(
                targets=[ast.Name(name)],
                value=ast.Call(
                    func=ast.Name("TypedDict"), args=[ast.Constant(told), ast.Dict() as fields], keywords=[]
                ),
            ):
                assert name == told
                assert name not in _TYPES
                records.add(name)
                for key in fields.keys:
                    assert isinstance(key, ast.Constant)
                    assert isinstance(key.value, str)
                for value in fields.values:
                    _assert_type(value, records)
            case ast.FunctionDef():
                _assert_function(statement, records)
                functions += 1
            case _:
                raise AssertionError(ast.unparse(statement)[:200])
    return functions


def _assert_function(function: ast.FunctionDef, records: set[str]) -> None:
    assert function.decorator_list == []
    assert not function.name.startswith("_")
    assert function.name not in _TYPES
    taken = function.args
    assert (taken.posonlyargs, taken.kwonlyargs, taken.vararg) == ([], [], None)
    for argument in [*taken.args, *([taken.kwarg] if taken.kwarg else [])]:
        assert not argument.arg.startswith("_")
        assert argument.annotation is not None
        _assert_type(argument.annotation, records)
    for default in taken.defaults:
        if not (isinstance(default, ast.Name) and default.id == "_OMITTED"):
            assert not any(isinstance(node, ast.Call | ast.Name) for node in ast.walk(default))
            ast.literal_eval(default)
    assert function.returns is not None
    _assert_type(function.returns, records)
    names = {argument.arg for argument in taken.args} | ({taken.kwarg.arg} if taken.kwarg else set[str]())
    match function.body:
        case [
            ast.Expr(value=ast.Constant(value=str())),
            ast.Return(value=ast.Call(func=ast.Name("_call"), args=[ast.Constant(value=str()), sent], keywords=[])),
        ]:
            match sent:
                case ast.Call(func=ast.Name("locals"), args=[], keywords=[]):
                    assert taken.kwarg is None
                    assert "locals" not in names
                case ast.Name(id=name):
                    assert taken.kwarg is not None
                    assert name == taken.kwarg.arg
                case ast.Dict(keys=keys, values=values):
                    assert all(key is None or isinstance(key, ast.Constant) for key in keys)
                    assert all(isinstance(value, ast.Name) and value.id in names for value in values)
                case _:
                    raise AssertionError(ast.unparse(sent)[:200])
        case _:
            raise AssertionError(ast.unparse(function)[:200])


def _assert_type(node: ast.expr, records: set[str], *, quoted: bool = False) -> None:
    match node:
        case ast.Name(name):
            assert name in _TYPES or name in records or quoted, name
        case ast.Constant(value=None):
            pass
        case ast.Constant(value=str(text)) if not quoted:
            _assert_type(ast.parse(text, mode="eval").body, records, quoted=True)
        case ast.Subscript(value=ast.Name("Literal"), slice=values):
            for value in values.elts if isinstance(values, ast.Tuple) else [values]:
                assert isinstance(ast.literal_eval(value), str | int | bool)
        case ast.Subscript(value=ast.Name(name), slice=inner):
            assert name in _TYPES
            for one in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                _assert_type(one, records, quoted=quoted)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            _assert_type(left, records, quoted=quoted)
            _assert_type(right, records, quoted=quoted)
        case _:
            raise AssertionError(ast.unparse(node)[:200])
