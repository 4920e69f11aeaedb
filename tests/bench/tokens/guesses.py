"""Finds where the code of a task takes a result apart that the model has neither been told the shape of nor seen."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from bench.tokens.task import Task


def guesses(task: Task, undeclared: Collection[str]) -> list[str]:
    """`undeclared` are the local names of tools that do not say what they give."""
    seen: set[str] = set()
    found: list[str] = []
    for turn in task.turns:
        for place, cell in enumerate(turn.cells):
            tree = ast.parse(cell)
            unknown = {name for name in _called(tree) if name in undeclared and name not in seen}
            found += [f"{task.name}: {ast.unparse(one)}" for one in _taken_apart(tree, unknown)]
            if place < len(turn.looks) or turn.reads:
                seen |= unknown
    return found


def _called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _taken_apart(tree: ast.Module, unknown: Collection[str]) -> Iterator[ast.AST]:
    """Uses of a result, or of a name that holds it, other than to print it, to keep it or to hand it on."""
    holding = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _gives(node.value, unknown)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    many = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int()) | ast.Slice()):
                # One of many results may be shown; one result may not be cut but as text.
                if name in holding - many and not isinstance(node.slice, ast.Slice):
                    yield node
            case (
                ast.Subscript(value=value)
                | ast.Attribute(value=value)
                | ast.For(iter=value)
                | ast.comprehension(iter=value)
            ) if _is(value, holding, unknown):
                yield node
            case _:
                pass


def _gives(value: ast.expr, unknown: Collection[str]) -> bool:
    match value:
        case ast.Call(func=ast.Name(id=name)):
            return name in unknown
        case ast.ListComp(elt=inner) | ast.DictComp(value=inner):
            return _gives(inner, unknown)
        case _:
            return False


def _is(value: ast.expr, holding: Collection[str], unknown: Collection[str]) -> bool:
    return _gives(value, unknown) or (isinstance(value, ast.Name) and value.id in holding)
