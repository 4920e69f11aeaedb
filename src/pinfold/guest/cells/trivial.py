"""Which cells can be run again, from the state before them, with the same effect: they only bind names to what is written there.

Judged by the text alone. In doubt a cell is not trivial, and a copy of the state after it is left.
"""

from __future__ import annotations

import ast

from .runner import VALUE

MOST = 20_000
"""Characters of a cell worth looking at."""
STATEMENTS = 50
_OPERATORS = frozenset((ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod))
_NUMBERS = frozenset((int, float, complex))


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


# By `type`: a cell waits for this, and `match` would take as long as compiling it does.


def _is_plain(statement: ast.stmt) -> bool:
    if type(statement) is ast.Assign:
        value = statement.value
        for target in statement.targets:
            if type(target) is not ast.Name:
                return False
            if target.id == VALUE:
                return _is_written(value)  # shown, which may call the program's own code
        return _is_bound(value)
    if type(statement) is ast.Expr:
        return _is_written(statement.value)
    return type(statement) is ast.Pass


def _is_bound(value: ast.expr) -> bool:
    """A name is bound to what it stands for, which nothing of the program's own is asked about."""
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
