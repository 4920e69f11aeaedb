"""Words, assignments and arithmetic of a script."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from pinfold.policy.lists import lists, named
from pinfold.policy.shell.findings import Findings
from pinfold.policy.shell.script import NotUnderstood, Word
from pinfold.policy.shell.tree import check_seams
from pinfold.policy.shell.words import (
    Pieces,
    ansi_string,
    arithmetic_names,
    is_simple_expansion,
    raw_string,
    string_content,
    unquoted,
)

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST = 40
"""Of what is nested in something else: subshells, loops, substitutions, the arguments of a nested shell."""
WORDS = frozenset(
    """word number concatenation string raw_string ansi_c_string simple_expansion expansion command_substitution
    process_substitution arithmetic_expansion brace_expression extglob_pattern regex translated_string""".split()  # noqa: SIM905
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%]?=(?!=))", re.ASCII)


@dataclass(slots=True)
class Spelling(Findings):
    source: bytes = b""
    text: int = 0
    """Which of the texts is being read: the script, or one that a command in it runs."""
    texts: int = 0
    length: int = 0
    """Of all the texts."""
    visited: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])
    """Substitutions that were read, by text and place."""

    def _visit(self, node: Node, depth: int) -> None:
        """Read what is nested in a word."""
        raise NotImplementedError

    def _shown(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _assignment(self, node: Node, depth: int, *, alone: bool) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            self._nested(node, depth)
            raise NotUnderstood(f"{self._shown(node)[:60]!r} sets one element of a list")
        check_seams(self.source, node.children, lines=False)
        plain = value is not None and value.type in ("number", "arithmetic_expansion")
        if value is not None and value.type == "array":
            for child in value.named_children:
                self._word(child, depth)
        elif value is not None:
            word = self._word(value, depth)
            plain = plain or (word.text or "").isdecimal()
        self._set(self._shown(name), plain=plain, alone=alone)

    def _arithmetic(self, node: Node, depth: int) -> None:
        shown = self._shown(node)
        names = arithmetic_names(shown)
        if names is None:
            self._nested(node, depth)
            raise NotUnderstood(f"{shown[:60]!r} calculates with more than numbers")
        self.evaluated |= names
        for assigned in _ASSIGNED.findall(shown):
            if named(assigned, lists().steering):
                self.beside(f"sets {assigned}, which steers other programs")

    def _word(self, node: Node, depth: int, *, quoted: bool = False) -> Word:
        pieces = Pieces(self._shown(node))
        self._pieces(node, pieces, depth, quoted=quoted)
        return pieces.word()

    def _certain(self, node: Node, depth: int) -> Word:
        """The same, for where the rest must be looked at whatever becomes of this one."""
        try:
            return self._word(node, depth)
        except NotUnderstood as reason:
            self.lost(str(reason))
            self._nested(node, depth)
            return Word(self._shown(node), None, many=True, splits=True)

    def _nested(self, node: Node, depth: int) -> None:
        """Read the substitutions of what is not understood: a rule against a command holds in there too."""
        pending = [node]
        while pending:
            one = pending.pop()
            if one.type in ("command_substitution", "process_substitution"):
                self._substitution(one, depth)
            else:
                pending.extend(one.named_children)

    def _substitution(self, node: Node, depth: int) -> None:
        place = (self.text, node.start_byte, node.end_byte)
        if place not in self.visited:
            self.visited.add(place)
            self._visit(node, depth + 1)

    def _pieces(self, node: Node, pieces: Pieces, depth: int, *, quoted: bool) -> None:
        kind, shown = node.type, self._shown(node)
        if kind in ("word", "number") and not node.children:
            pieces.bare(shown)
        elif kind == "string_content":
            pieces.known(string_content(shown))
        elif kind == "raw_string":
            pieces.known(raw_string(shown))
        elif kind == "$":
            pieces.known("$")
        elif kind == "string":
            self._string(node, pieces, depth)
        elif kind == "concatenation":
            if any(left.end_byte != right.start_byte for left, right in pairwise(node.children)):
                raise NotUnderstood(f"{shown[:60]!r} is more than one word")
            for child in node.children:
                self._pieces(child, pieces, depth, quoted=quoted)
        else:
            self._expanded(node, shown, pieces, depth, quoted=quoted)

    def _expanded(self, node: Node, shown: str, pieces: Pieces, depth: int, *, quoted: bool) -> None:
        match node.type:
            case "ansi_c_string":
                text = ansi_string(shown)
                if text is None:
                    pieces.unknown(quoted=True)
                else:
                    pieces.known(text)
            case "brace_expression":
                pieces.unknown(quoted=False)
            case "simple_expansion" | "expansion":
                self._expansion(node, shown, depth)
                pieces.unknown(quoted=quoted)
            case "arithmetic_expansion":
                self._arithmetic(node, depth)
                pieces.unknown(quoted=True)
            case "command_substitution" | "process_substitution":
                self._substitution(node, depth)
                pieces.unknown(quoted=quoted or node.type == "process_substitution")
            case "extglob_pattern":
                unquoted(shown)
                pieces.unknown(quoted=False)
            case _:
                raise NotUnderstood(f"{shown[:60]!r}")

    def _string(self, node: Node, pieces: Pieces, depth: int) -> None:
        children = node.children
        if len(children) < 2 or children[0].type != '"' or children[-1].type != '"':
            raise NotUnderstood(f"{self._shown(node)[:60]!r}")
        at = children[0].end_byte
        for child in children[1:]:
            # Blanks between two expansions belong to no node.
            gap = self.source[at : child.start_byte].decode("utf-8", "replace")
            if gap.strip():
                raise NotUnderstood(f"{self._shown(node)[:60]!r}")
            pieces.known(gap)
            if child.type != '"':
                self._pieces(child, pieces, depth, quoted=True)
            at = child.end_byte

    def _expansion(self, node: Node, shown: str, depth: int) -> None:
        if node.type == "expansion" and not is_simple_expansion(shown):
            self.beside(f"{shown.strip()[:60]} may do more than give a value")
            if depth > DEEPEST:
                self.stop("it is nested too deeply")
                return
            for child in node.named_children:
                if child.type in WORDS:
                    self._certain(child, depth + 1)
