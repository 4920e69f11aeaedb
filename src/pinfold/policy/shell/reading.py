"""Reads a shell command into the simple commands it runs. Pure: nothing is expanded, looked up or run.

Every kind of node is either known here or NotUnderstood. Where the grammar puts things that bash would not run in that
order (a redirect on a whole list) does not matter: a script only reads if all that is in it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from pinfold.policy.shell.danger import danger_of, deleted, written
from pinfold.policy.shell.known import why_it_writes
from pinfold.policy.shell.redirects import Redirects
from pinfold.policy.shell.script import Command, NotUnderstood, Script, Word
from pinfold.policy.shell.spelling import WORDS
from pinfold.policy.shell.tree import check_seams, parse
from pinfold.policy.shell.words import strange
from pinfold.policy.shell.wrapping import Inner, inner_of

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST = 40
"""Of what is nested, in nodes of the tree that hold statements, nested shells included."""
_HOLDERS = frozenset(
    """program list pipeline subshell if_statement elif_clause else_clause while_statement for_statement do_group
    case_statement case_item negated_command redirected_statement command_substitution process_substitution
    c_style_for_statement compound_statement variable_assignments ERROR""".split()  # noqa: SIM905
)
_TOKENS = frozenset(
    """; & && || | |& ;; ;& ;;& ( ) { } (( )) if then elif else fi while until for select in do done case esac ! `
    $( <( >( [ ] [[ ]] = \n $ == function""".split()  # noqa: SIM905
) | {"\n"}


@lru_cache(maxsize=512)
def read_script(command: str) -> Script:
    """What a shell would run. Never raises: what is not understood says so."""
    reader = _Reader()
    if reason := strange(command):
        reader.lost(reason)
    else:
        reader.read(command, 0)
    return reader.script()


@dataclass(slots=True)
class _Reader(Redirects):
    def read(self, text: str, depth: int) -> None:
        source, self.source = self.source, text.encode("utf-8", "surrogatepass")
        root = parse(self.source)
        if root.has_error:
            self.lost("its syntax is not understood")
        if root.start_byte > len(self.source) - len(self.source.lstrip()):
            self.lost("its beginning is not understood")
        if self.source[root.end_byte :].strip():
            self.lost("its end is not understood")
        self._visit(root, depth)
        self.source = source

    def _visit(self, node: Node, depth: int) -> None:
        if depth > DEEPEST:
            self.lost("it is nested too deeply")
            return
        try:
            self._statement(node, depth)
        except NotUnderstood as reason:
            self.lost(str(reason))

    def _statement(self, node: Node, depth: int) -> None:
        kind = node.type
        if kind == "command":
            self._command(node, depth)
        elif kind in _HOLDERS:
            self._holder(node, depth)
        elif kind in ("comment", "heredoc_body", "heredoc_end", "heredoc_content"):
            pass
        elif kind == "test_command":
            self._test(node, depth)
        elif kind in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
            self._redirect(node, depth)
        elif kind == "variable_assignment":
            self._assignment(node, depth, alone=True)
        elif kind == "function_definition":
            self._function(node, depth)
        elif kind == "declaration_command":
            self._declaration(node, depth)
        elif kind == "unset_command":
            self.beside(f"{self._shown(node)[:60]} changes the shell")
        elif kind in WORDS:
            self._word(node, depth)
        elif node.is_named or kind not in _TOKENS:
            raise NotUnderstood(f"{self._shown(node)[:60]!r}")

    def _holder(self, node: Node, depth: int) -> None:
        children = node.children
        kind = node.type
        if kind == "compound_statement" and children and children[0].type == "((":
            self._arithmetic(self._shown(node))
            return
        try:
            self._check_holder(node, children)
        except NotUnderstood as reason:
            self.lost(str(reason))
        extra = self._words_after_redirects(children) if kind == "redirected_statement" else []
        fed = self._fed(children) if kind == "redirected_statement" else None
        for child in children:
            if kind == "for_statement" and child.type == "variable_name":
                self._loop(node, self._shown(child))
            elif kind == "c_style_for_statement" and child.type not in ("do_group", "compound_statement"):
                continue
            elif child.type == "command":
                if depth < DEEPEST:
                    self._command(child, depth + 1, extra, fed)
                else:
                    self._visit(child, depth + 1)
            else:
                self._visit(child, depth + 1)

    def _check_holder(self, node: Node, children: list[Node]) -> None:
        kind = node.type
        if kind in ("command_substitution", "process_substitution"):
            self._check_substitution(node)
        if kind == "c_style_for_statement":
            self._counting(node)
        one_line = kind in ("redirected_statement", "variable_assignments")
        check_seams(self.source, children, lines=not one_line)
        if kind not in ("program", "do_group", "compound_statement", "subshell", "list", "pipeline"):
            return
        for left, right in pairwise(children):
            # Two statements are kept apart by an operator or the end of a line; the grammar must have seen it.
            apart = left.is_named and right.is_named and "comment" not in (left.type, right.type)
            if apart and b"\n" not in self.source[left.start_byte : right.start_byte]:
                raise NotUnderstood(f"where {self._shown(right)[:40]!r} begins")

    def _check_substitution(self, node: Node) -> None:
        shown = self._shown(node).strip()
        if shown.startswith("`") and "\\" in shown:
            raise NotUnderstood(f"{shown[:60]!r} has escapes inside backquotes")
        if shown.startswith(">("):
            self.beside("writes to another command's input")

    def _loop(self, node: Node, name: str) -> None:
        if node.children[0].type == "select":
            self.beside("waits for an answer")
        values = node.children_by_field_name("value")
        plain = all(value.type in ("number", "brace_expression") for value in values)
        self._set(name, plain=plain and bool(values), alone=True)

    def _counting(self, node: Node) -> None:
        shown = self._shown(node)
        head = shown[shown.find("((") + 2 : shown.find("))")]
        for part in head.split(";"):
            self._arithmetic(part)
        for assigned in re.findall(r"([A-Za-z_]\w*)\s*=(?!=)", head):
            self._set(assigned, plain=True, alone=True)

    def _function(self, node: Node, depth: int) -> None:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        called = self._shown(name) if name else ""
        self.beside(f"defines a function {called}")
        before = len(self.commands)
        if body:
            self._visit(body, depth + 1)
        again = any(command.name == called for command in self.commands[before:])
        if again and body and re.search(r"[|&]", self._shown(body)):
            self.dangers.append(f"{called} starts itself over and over")

    def _declaration(self, node: Node, depth: int) -> None:
        children = node.children
        check_seams(self.source, children, lines=False)
        for child in children[1:]:
            if child.type == "variable_assignment":
                self._assignment(child, depth, alone=False)
            elif child.type != "variable_name" or children[0].type != "local":
                self.beside(f"{self._shown(node)[:60]} changes the shell")

    def _command(self, node: Node, depth: int, extra: Iterable[Node] = (), fed: str | None = None) -> None:
        children = node.children
        place, besides = len(self.commands), len(self.besides)
        try:
            check_seams(self.source, children, lines=False)
            self._check_words(node, children)
        except NotUnderstood as reason:
            self.lost(str(reason))
        words: list[Word] = []
        sets = False
        for child in [*children, *extra]:
            if child.type == "variable_assignment":
                self._visit_assignment(child, depth)
                sets = True
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                self._visit(child, depth + 1)
            else:
                words.append(
                    self._certain(child.children[0] if child.type == "command_name" else child, depth)
                )
        plain = (
            not sets
            and len(self.commands) == place
            and len(self.besides) == besides
            and not any(word.text is None and word.may_be_flag for word in words)
        )
        self._add(words, self._shown(node), depth, plain=plain, place=place, fed=fed)

    def _visit_assignment(self, node: Node, depth: int) -> None:
        try:
            self._assignment(node, depth, alone=False)
        except NotUnderstood as reason:
            self.lost(str(reason))

    def _check_words(self, node: Node, children: list[Node]) -> None:
        for left, right in pairwise(children):
            redirects = {left.type, right.type} & {"file_redirect", "herestring_redirect"}
            if left.end_byte == right.start_byte and not redirects:
                raise NotUnderstood(f"{self._shown(node)[:60]!r}: where its words begin")

    def _add(
        self,
        words: list[Word],
        shown: str,
        depth: int,
        *,
        plain: bool,
        place: int | None = None,
        fed: str | None = None,
    ) -> None:
        """Judge one simple command, and what it runs."""
        if not words:
            return
        inner = inner_of(words, fed)
        why = inner.why if inner else why_it_writes(words)
        command = Command(words=tuple(words), shown=shown, why=why, plain=plain and inner is None)
        self.commands.insert(len(self.commands) if place is None else place, command)
        if why:
            self.reasons.append(why)
        if danger := danger_of(words, reads=not why) or (inner and inner.danger):
            self.dangers.append(danger)
        self.deletes += deleted(words)
        self.writes += written(words) if why else []
        if inner:
            self._inner(inner, shown, depth)

    def _inner(self, inner: Inner, shown: str, depth: int) -> None:
        for name in inner.sets:
            self._set(name, plain=False, alone=inner.alone)
        for words in inner.perhaps:
            self.commands.append(Command(words=words, shown=shown, why="may be what is run"))
        if depth > DEEPEST and (inner.commands or inner.texts):
            self.lost("it is nested too deeply")
            return
        for words in inner.commands:
            self._add(list(words), shown, depth + 1, plain=False)
        for text in inner.texts:
            self.read(text, depth + 1)
