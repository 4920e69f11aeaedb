"""Reads a shell command into the simple commands it runs. Pure: nothing is expanded, looked up or run.

Every kind of node is either known here or NotUnderstood. Where the grammar puts things that bash would not run in that
order (a redirect on a whole list) does not matter: a script only reads if all that is in it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pinfold.policy.shell.danger import danger_of, deleted, written
from pinfold.policy.shell.known import why_it_writes
from pinfold.policy.shell.redirects import Redirects
from pinfold.policy.shell.script import Command, NotUnderstood, Word
from pinfold.policy.shell.spelling import DEEPEST, WORDS
from pinfold.policy.shell.tree import check_seams, parse
from pinfold.policy.shell.words import LONGEST, arithmetic_names
from pinfold.policy.shell.wrapping import Inner, inner_of

if TYPE_CHECKING:
    from tree_sitter import Node

_HOLDERS = frozenset(
    """program list pipeline subshell if_statement elif_clause else_clause while_statement for_statement do_group
    case_statement case_item negated_command redirected_statement command_substitution process_substitution
    c_style_for_statement compound_statement variable_assignments ERROR""".split()  # noqa: SIM905
)
_NEEDED = ("PATH", "IFS", "HOME")
"""Without these other programs would be run, or run otherwise."""
_CHAINS = frozenset({"list", "pipeline", "redirected_statement", "negated_command"})
_TOKENS = frozenset(
    """; & && || | |& ;; ;& ;;& ( ) { } (( )) if then elif else fi while until for select in do done case esac ! `
    $( <( >( [ ] [[ ]] = \n $ == function""".split()  # noqa: SIM905
) | {"\n"}


@dataclass(slots=True)
class Reader(Redirects):
    def read(self, text: str, depth: int) -> None:
        self.length += len(text)
        if self.length > 3 * LONGEST:
            self.stop("it is nested too often")
            return
        outer = self.source, self.text
        self.source = text.encode("utf-8", "surrogatepass")
        self.texts += 1
        self.text = self.texts
        root = parse(self.source)
        if root.has_error:
            self.lost("its syntax is not understood")
        elif self.source[: root.start_byte].strip() or self.source[root.end_byte :].strip():
            self.lost("not all of it is understood")
        if self.text == 1:
            self.alone = [child.type for child in root.children if child.type != "comment"] == ["command"]
        self._visit(root, depth)
        self.source, self.text = outer

    def _visit(self, node: Node, depth: int) -> None:
        if depth > DEEPEST:
            self.stop("it is nested too deeply")
            return
        try:
            self._statement(node, depth)
        except NotUnderstood as reason:
            self.lost(str(reason))

    def _statement(self, node: Node, depth: int) -> None:
        kind = node.type
        if kind in _HOLDERS:
            self._holder(node, depth)
        elif kind in WORDS:
            self._word(node, depth)
        else:
            self._single(node, depth)

    def _single(self, node: Node, depth: int) -> None:
        match node.type:
            case "command":
                self._command(node, depth)
            case "comment" | "heredoc_body" | "heredoc_end" | "heredoc_content":
                pass
            case "test_command":
                self._test(node, depth)
            case "file_redirect" | "herestring_redirect" | "heredoc_redirect":
                self._redirect(node, depth)
            case "variable_assignment":
                self._assignment(node, depth, alone=True)
            case "function_definition":
                self._function(node, depth)
            case "declaration_command":
                self._declaration(node, depth)
            case "unset_command":
                names = [self._shown(child) for child in node.named_children]
                if not all(name.isidentifier() and name not in _NEEDED for name in names):
                    self.beside(f"{self._shown(node)[:60]} changes the shell")
            case kind:
                if node.is_named or kind not in _TOKENS:
                    raise NotUnderstood(f"{self._shown(node)[:60]!r}")

    def _holder(self, node: Node, depth: int) -> None:
        if node.type == "compound_statement" and node.children and node.children[0].type == "((":
            self._arithmetic(node, depth)
            return
        # A chain is a tree as deep as the chain is long, so it is not walked by recursion.
        pending: list[tuple[Node, Node, list[Node], str | None]] = [(node, node, [], None)]
        while pending:
            one, parent, extra, fed = pending.pop()
            if one is node or one.type in _CHAINS:
                children = self._checked(one, depth)
                extra = fed = None
                if one.type == "redirected_statement":
                    extra, fed = self._words_after_redirects(children), self._fed(children)
                pending += [(child, one, extra or [], fed) for child in reversed(children)]
            elif parent.type == "for_statement" and one.type == "variable_name":
                self._loop(parent, self._shown(one))
            elif one.type == "command" and depth < DEEPEST:
                self._command(one, depth + 1, extra, fed)
            else:
                self._visit(one, depth + 1)

    def _checked(self, node: Node, depth: int) -> list[Node]:
        children = node.children
        try:
            self._check_holder(node, children, depth)
        except NotUnderstood as reason:
            self.lost(str(reason))
        if node.type == "c_style_for_statement":
            return [child for child in children if child.type in ("do_group", "compound_statement")]
        return children

    def _check_holder(self, node: Node, children: list[Node], depth: int) -> None:
        kind = node.type
        if kind in ("command_substitution", "process_substitution"):
            self._check_substitution(node)
        if kind == "c_style_for_statement":
            self._counting(node, depth)
        one_line = kind in ("redirected_statement", "variable_assignments")
        check_seams(self.source, children, lines=not one_line)
        if kind not in ("program", "do_group", "compound_statement", "subshell", "list", "pipeline"):
            return
        if any(child.type in (";;", ";&", ";;&") for child in children):
            raise NotUnderstood("a case that is none")
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

    def _counting(self, node: Node, depth: int) -> None:
        """The head of `for ((i = 0; i < 3; i++))`."""
        shown = self._shown(node)
        head = shown[shown.find("((") + 2 : shown.find("))")]
        for part in head.split(";"):
            names = arithmetic_names(part)
            if names is None:
                self._nested(node, depth)
                raise NotUnderstood(f"{shown[:60]!r} calculates with more than numbers")
            self.evaluated |= names
        for name in re.findall(r"([A-Za-z_]\w*)\s*=(?!=)", head):
            self._set(name, plain=True, alone=True)

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
            self.stop("it is nested too deeply")
            return
        for words in inner.commands:
            self._add(list(words), shown, depth + 1, plain=False)
        for text in inner.texts:
            self.read(text, depth + 1)
