"""Finds the simple commands in the syntax tree of a shell command. Nothing is expanded or run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from pinfold.policy.shell.effects import (
    danger_of,
    danger_together,
    deletion_targets,
    inner_of,
    is_harmless,
    outside,
    why_it_writes,
)
from pinfold.policy.shell.script import Command, Script, Word

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

DEEPEST = 40
"""The deepest nesting of commands, and of texts run by another shell."""
MOST_TEXT = 300_000
"""The most characters of all texts together."""
_NO_WRITE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_CUT = re.compile(r"[^ \t\n]\\\n")
"""A word continued on the next line, which the grammar reads as two."""
_UNESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PATTERN = re.compile(r"[*?\[]|\{[^}]*(?:,|\.\.)[^}]*\}")


@cache
def _parser() -> Parser:
    # Takes 20 ms to import, so only when there is a shell command to parse.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@dataclass(slots=True)
class Tree:
    commands: list[Command] = field(default_factory=list[Command])
    besides: list[str] = field(default_factory=list[str])
    deletes: list[str] = field(default_factory=list[str])
    reasons: list[str] = field(default_factory=list[str])
    dangers: list[str] = field(default_factory=list[str])
    unparsed: bool = False
    unread: bool = False
    source: bytes = b""
    length: int = 0

    def script(self, plain: tuple[str, ...] = ()) -> Script:
        danger = danger_together(self.commands)
        dangers = [*self.dangers, *([danger] if danger else [])]
        seen = [word.text or word.shown for command in self.commands for word in command.words]
        return Script(
            commands=tuple(self.commands),
            besides=tuple(self.besides),
            deletes=tuple(dict.fromkeys(self.deletes)),
            why=next(iter([*self.reasons, *dangers]), ""),
            dangerous=dangers[0] if dangers else None,
            unparsed=self.unparsed,
            unread=self.unread or (self.unparsed and not self.commands),
            plain=plain if seen == list(plain) and not self.besides and not self.unparsed else (),
        )

    def stop(self, reason: str) -> None:
        """Record that part of the command is not parsed."""
        self.unread = True
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        self.unparsed = True
        self.besides.append(f"it could not be fully parsed: {reason}")
        self.reasons.append(self.besides[-1])

    def read(self, text: str, depth: int) -> None:
        self.length += len(text)
        if depth > DEEPEST or self.length > MOST_TEXT:
            self.stop("it is nested too deeply")
            return
        outer, self.source = self.source, text.encode("utf-8", "surrogatepass")
        root = _parser().parse(self.source).root_node
        if root.has_error or _CUT.search(text):
            self._lose("its syntax is not understood")
        self._visit(root, depth)
        self.source = outer

    def _visit(self, root: Node, depth: int) -> None:
        """Visit every node in text order, without recursion: a tree may be as deep as a command chain is long."""
        pending = [root]
        extra: dict[int, tuple[list[Node], str | None]] = {}
        """The words after a redirect, and the here-document, by the position of their command."""
        while pending:
            node = pending.pop()
            match node.type:
                case "redirected_statement":
                    if (body := node.child_by_field_name("body")) is not None:
                        extra[body.start_byte] = (self._after_redirects(node.children), self._heredoc(node.children))
                case "command":
                    words, fed = extra.get(node.start_byte, ([], None))
                    self._command(node, words, fed, depth)
                case "file_redirect":
                    self._redirect(node)
                case "variable_assignment" | "for_statement" | "declaration_command" | "unset_command":
                    self.besides.append(f"sets variables: {self._source_of(node)[:60]}")
                case "function_definition":
                    self._function(node)
                case _:
                    pass
            pending.extend(reversed(node.children))

    def _source_of(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _function(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        called = self._source_of(name) if name else ""
        self.besides.append(f"defines a function {called}")
        if body and called and re.search(rf"{re.escape(called)}\s*[|&]", self._source_of(body)):
            self.dangers.append(f"{called} starts itself over and over")

    def _after_redirects(self, children: Iterable[Node]) -> list[Node]:
        """Return arguments after a redirect: in `cmd >out word` the grammar takes the word for another target."""
        found: list[Node] = []
        for child in children:
            if child.type == "file_redirect":
                found += child.children_by_field_name("destination")[1:]
            elif child.type == "heredoc_redirect":
                found += child.children_by_field_name("argument")
                found += self._after_redirects(child.children_by_field_name("redirect"))
        return found

    def _heredoc(self, children: Iterable[Node]) -> str | None:
        """Return the text of a here-document, or None."""
        for child in children:
            if child.type == "heredoc_redirect":
                return next((self._source_of(one) for one in child.children if one.type == "heredoc_body"), None)
        return None

    def _redirect(self, node: Node) -> None:
        operator = next((child.type for child in node.children if not child.is_named), "")
        targets = node.children_by_field_name("destination")
        if not targets or operator in ("<", "<&-", ">&-"):
            return
        word = self._word(targets[0])
        is_number = word.text is not None and (word.text.isdecimal() or word.text == "-")
        if operator == "<&" or (operator == ">&" and is_number) or word.text in _NO_WRITE:
            return
        self.besides.append(f"writes to {word.shown}")
        self.reasons.append(self.besides[-1])
        if where := outside(word):
            self.dangers.append(f"writes to {word.shown}, {where}")

    def _command(self, node: Node, extra: list[Node], fed: str | None, depth: int) -> None:
        words = [
            self._word(child.children[0] if child.type == "command_name" and child.children else child)
            for child in [*node.children, *extra]
            if child.type not in _REDIRECTS and child.type != "variable_assignment"
        ]
        self._add(words, self._source_of(node), fed, depth)

    def _add(self, words: list[Word], shown: str, fed: str | None, depth: int) -> None:
        """Add one simple command and the commands it runs."""
        if not words:
            return
        if depth > DEEPEST:
            self.stop("it is nested too deeply")
            return
        inner = inner_of(words, fed)
        why = inner.why if inner else why_it_writes(words)
        self.commands.append(
            Command(words=tuple(words), shown=shown, why=why, harmless=not why and is_harmless(words, inner))
        )
        if why:
            self.reasons.append(why)
        if danger := danger_of(words, reads=not why) or (inner.danger if inner else ""):
            self.dangers.append(danger)
        self.deletes += deletion_targets(words)
        for given in inner.commands if inner else ():
            self._add(list(given), shown, None, depth + 1)
        for given in inner.perhaps if inner else ():
            self.commands.append(Command(words=given, shown=shown, why="may be what is run"))
        for text in inner.texts if inner else ():
            self.read(text, depth + 1)

    def _word(self, node: Node) -> Word:
        text, is_certain = self._value(node, quoted=False)
        shown = self._source_of(node)
        return Word(shown, text) if is_certain else Word(shown, None, text)

    def _value(self, node: Node, *, quoted: bool) -> tuple[str, bool]:
        """Return the known beginning of a word, and whether that is the whole word."""
        shown = self._source_of(node)
        match node.type:
            case "word" | "number" if not node.children:
                found = None if quoted else _PATTERN.search(shown)
                return _UNESCAPED.sub(r"\1", shown[: found.start()] if found else shown), found is None
            case "string_content":
                return re.sub(r'\\([$`"\\\n])', r"\1", shown), True
            case "raw_string":
                return shown[1:-1], True
            case "ansi_c_string":
                return shown[2:-1].partition("\\")[0], "\\" not in shown
            case '"':
                return "", True
            case "$":
                return "$", True
            case "string" | "concatenation":
                return self._join_parts(node, quoted=node.type == "string")
            case _:
                return "", False

    def _join_parts(self, node: Node, *, quoted: bool) -> tuple[str, bool]:
        text, at = "", node.start_byte
        if not quoted and _PATTERN.search("".join(self._source_of(one) for one in node.children if one.type == "word")):
            first, certain = self._value(node.children[0], quoted=False)
            return first if certain else "", False
        for child in node.children:
            # Spaces between two expansions belong to no node.
            text += self.source[at : child.start_byte].decode("utf-8", "replace")
            at = child.end_byte
            value, is_certain = self._value(child, quoted=quoted)
            text += value
            if not is_certain:
                return text, False
        return text, True
