"""Records which cell last bound each name, and recognises cells that only bind names. Never inspects values."""

from __future__ import annotations

import ast
from contextlib import suppress
from opcode import EXTENDED_ARG, opmap
from types import CodeType

MOST = 20_000
"""The most characters of a cell that is analysed."""
STATEMENTS = 50
_STORES = opmap["STORE_NAME"], opmap["STORE_GLOBAL"]
_OPERATORS = frozenset((ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod))
_NUMBERS = frozenset((int, float, complex))


class Origins:
    """The cell that last bound each name."""

    def __init__(self, namespace: dict[str, object]) -> None:
        self._namespace = namespace
        self._cells: dict[str, int] = dict.fromkeys(namespace, 0)
        self._code: CodeType | None = None
        self._before: list[int] = []

    def begin(self, code: CodeType) -> None:
        # Ids, not objects: the cell must be able to free what it rebinds.
        self._before = list(map(id, map(self._namespace.get, code.co_names)))
        self._code = code  # set last: an interrupt may come between, and the two must match

    def end(self, cell: int, *, failed: bool) -> None:
        """Credit a cell with every name its code binds; a cell that failed only with the names that changed."""
        code, self._code = self._code, None
        if code is not None:
            before = dict(zip(code.co_names, self._before, strict=True))
            for name in find_bound_names(code):
                if not failed or id(self._namespace.get(name)) != before[name]:
                    self._cells[name] = cell
        self._credit_new(cell)

    @property
    def cells(self) -> dict[str, int]:
        """The cell of each name that exists now."""
        return {name: cell for name, cell in self._cells.items() if cell and name in self._namespace}

    def adopt(self, cells: dict[str, int]) -> None:
        """Set the cells that bound the present names, in another process."""
        self._cells = {**dict.fromkeys(self._namespace, 0), **cells}

    def cell_of(self, name: str) -> int | None:
        return self._cells.get(name) or None

    def _credit_new(self, cell: int) -> None:
        """Credit names bound by `global`, `import *` or `globals()`: a dictionary has its new keys last."""
        with suppress(RuntimeError):  # a thread binds names meanwhile; the next cell finds them
            for name in reversed(self._namespace):
                if type(name) is not str or name in self._cells:
                    break
                self._cells[name] = cell


def find_bound_names(code: CodeType) -> list[str]:
    """Return the names a cell's own code binds, in any branch of it."""
    names, high = list[str](), 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        if operation in _STORES:
            names.append(code.co_names[high | low])
        high = (high | low) << 8 if operation == EXTENDED_ARG else 0
    return names


def is_trivial(source: str, tree: ast.Module | None = None) -> bool:
    """Return whether a cell only binds names, so that it can be run again. `tree`: its syntax tree, if known."""
    if len(source) > MOST:
        return False
    try:
        body = (tree or ast.parse(source)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # a magic, or a cell that never ran
    return len(body) <= STATEMENTS and all(map(_is_plain, body))


def _is_plain(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=targets, value=value):
            return all(type(target) is ast.Name for target in targets) and _is_bound(value)
        case ast.Expr(value=value):
            return _is_written(value)  # showing any other value may call the program's own code
        case _:
            return type(statement) is ast.Pass


def _is_bound(value: ast.expr) -> bool:
    """Return whether a value is made of names and literals only, so that evaluating it runs no code of the program."""
    if type(value) is ast.List or type(value) is ast.Tuple:
        return all(map(_is_bound, value.elts))
    return type(value) is ast.Name or _is_written(value)


def _is_written(value: ast.expr) -> bool:
    if type(value) is ast.Constant:
        return True
    if type(value) is ast.BinOp:
        return type(value.op) in _OPERATORS and _is_number(value.left) and _is_number(value.right)
    return type(value) is ast.UnaryOp and _is_number(value.operand)


def _is_number(value: ast.expr) -> bool:
    return type(value) is ast.Constant and type(value.value) in _NUMBERS
