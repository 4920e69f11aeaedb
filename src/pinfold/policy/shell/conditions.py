"""`[ ... ]` and `[[ ... ]]`: they only compare, unless they evaluate a name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pinfold.policy.shell.spelling import WORDS, Spelling

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMERIC = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_OPERATORS = frozenset({"=", "==", "!=", "=~", "<", ">", "&&", "||", "!", "(", ")", "variable_name"})
_EXPRESSIONS = frozenset(
    {"binary_expression", "unary_expression", "parenthesized_expression", "negated_command"}
)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)", re.ASCII)
_SUBSTITUTION = re.compile(r"`|\$[({]")


@dataclass(slots=True)
class Conditions(Spelling):
    def _test(self, node: Node, depth: int) -> None:
        single = node.children[0].type == "["
        pending = list(reversed(node.children[1:-1]))
        loose = False
        while pending:
            child = pending.pop()
            kind = child.type
            if kind in _EXPRESSIONS:
                pending.extend(reversed(child.children))
            elif kind in (">", "<", ">=", "<=") and single:
                self.beside(f"{self._shown(node)[:60]} redirects")
            elif kind == "test_operator":
                self._test_operator(node, self._shown(child), single=single)
            elif kind in ("regex", "extglob_pattern"):
                if _SUBSTITUTION.search(self._shown(child)):
                    self.lost(f"{self._shown(child)[:60]!r}")
            elif kind in WORDS:
                word = self._certain(child, depth)
                if single and word.text is None and loose:
                    self.beside(f"{self._shown(node)[:60]} may evaluate a name")
                if single and word.splits:
                    self.compared |= set(_VARIABLE.findall(word.shown)) or {word.shown}
                loose = word.text is None
                continue
            elif kind not in _OPERATORS:
                self.lost(f"{self._shown(child)[:60]!r}")
            loose = False

    def _test_operator(self, node: Node, operator: str, *, single: bool) -> None:
        if operator in ("-v", "-R"):
            self.beside(f"{operator} evaluates a name")
        if operator in _NUMERIC and not single:
            # [[ ]] evaluates both sides as arithmetic; [ ] takes numbers only.
            shown = self._shown(node)
            self.evaluated |= set(_VARIABLE.findall(shown))
            if re.search(r"['\"`]|\$\(|\[.*\[.*\[", shown):
                self.beside(f"{shown[:60]} calculates with more than numbers")
