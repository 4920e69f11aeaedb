"""The syntax tree of a shell command."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from pinfold.policy.shell.script import NotUnderstood

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


@cache
def _parser() -> Parser:
    # 20 ms to import: only when there is a shell command to read.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse(source: bytes) -> Node:
    return _parser().parse(source).root_node


def check_seams(source: bytes, children: list[Node], *, lines: bool) -> None:
    """Between two words of one command there are blanks, and no end of line unless it is escaped. Raises NotUnderstood.

    The grammar takes an escaped end of line for a blank; to the shell it is nothing at all.
    """
    for left, right in pairwise(children):
        gap = source[left.end_byte : right.start_byte]
        if gap in (b" ", b""):
            continue
        if b"\\\n" in gap:
            if not gap.startswith((b" ", b"\t")):
                raise NotUnderstood("a word goes on in another line")
            gap = gap.replace(b"\\\n", b" ")
        if gap.strip(b" \t\n" if lines else b" \t"):
            raise NotUnderstood("there is something between two words")
