"""Which cells can be run again, from the state before them, with the same effect: they only bind names to what is written there.

Judged by the text alone. In doubt a cell is not trivial, and a copy of the state after it is left.
"""

from __future__ import annotations

import ast

from .cells import VALUE

MOST = 20_000
"""Characters of a cell worth looking at."""
STATEMENTS = 50
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)


def is_trivial(source: str) -> bool:
    if len(source) > MOST:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # a magic, or nothing that ran
    return only_binds(tree)


def only_binds(tree: ast.Module) -> bool:
    return len(tree.body) <= STATEMENTS and all(map(_is_plain, tree.body))


def _is_plain(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass():
            return True
        case ast.Expr(value):
            return _is_written(value)
        case ast.Assign([ast.Name(name)], value) if name == VALUE:
            return _is_written(value)  # shown, which may call the program's own code
        case ast.Assign(targets, value):
            return all(isinstance(target, ast.Name) for target in targets) and _is_bound(value)
        case _:
            return False


def _is_bound(value: ast.expr) -> bool:
    """A name is bound to what it stands for, which nothing of the program's own is asked about."""
    match value:
        case ast.Name():
            return True
        case ast.List(elements) | ast.Tuple(elements):
            return all(map(_is_bound, elements))
        case _:
            return _is_written(value)


def _is_written(value: ast.expr) -> bool:
    match value:
        case ast.Constant():
            return True
        case ast.UnaryOp(_, operand):
            return _is_number(operand)
        case ast.BinOp(left, operator, right):
            return isinstance(operator, _OPERATORS) and _is_number(left) and _is_number(right)
        case _:
            return False


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) in (int, float, complex)
