"""Redirects, here-documents and here-strings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pinfold.policy.shell.conditions import Conditions
from pinfold.policy.shell.danger import outside
from pinfold.policy.shell.script import NotUnderstood
from pinfold.policy.shell.tree import check_seams
from pinfold.policy.shell.words import heredoc_end

if TYPE_CHECKING:
    from tree_sitter import Node

_NO_WRITE = ("/dev/null", "/dev/stdout", "/dev/stderr")
_DELIMITER = re.compile(r"(['\"]?)([A-Za-z_][\w-]*)\1|\\?([A-Za-z_]\w*)", re.ASCII)
_EXPANDED = re.compile(r"(?<!\\)(`|\$[({])")


@dataclass(slots=True)
class Redirects(Conditions):
    def _words_after_redirects(self, children: Iterable[Node]) -> list[Node]:
        """`cmd >out word`: the grammar takes the word for one more target, the shell for an argument of cmd."""
        found: list[Node] = []
        for child in children:
            if child.type == "file_redirect":
                found += child.children_by_field_name("destination")[1:]
            elif child.type == "heredoc_redirect":
                found += child.children_by_field_name("argument")
                found += self._words_after_redirects(child.children_by_field_name("redirect"))
        return found

    def _redirect(self, node: Node, depth: int) -> None:
        match node.type:
            case "heredoc_redirect":
                self._heredoc(node, depth)
            case "herestring_redirect":
                for child in node.named_children:
                    self._word(child, depth)
            case _:
                self._file_redirect(node, depth)

    def _file_redirect(self, node: Node, depth: int) -> None:
        check_seams(self.source, node.children, lines=False)
        operator = next((child.type for child in node.children if not child.is_named), "")
        targets = node.children_by_field_name("destination")
        if operator in ("<&-", ">&-"):
            return
        if not targets or operator not in ("<", ">", ">>", "&>", "&>>", ">|", ">&", "<&"):
            raise NotUnderstood(f"{self._shown(node)[:60]!r}")
        word = self._word(targets[0], depth)
        text = word.text
        if operator in (">&", "<&") and text is not None and (text.isdecimal() or text == "-"):
            return
        if operator in ("<", "<&"):
            # bash itself opens connections under these names.
            if (text or word.head or "/dev/tcp/").startswith(("/dev/tcp", "/dev/udp")) or word.many:
                self.beside(f"reads from {word.shown}, which may be a connection")
            return
        if text in _NO_WRITE:
            return
        self.beside(f"writes to {word.shown}")
        if text is not None:
            self.writes.append(text)
        if where := outside(word):
            self.dangers.append(f"writes to {word.shown}, {where}")

    def _heredoc(self, node: Node, depth: int) -> None:
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        end = next((child for child in node.children if child.type == "heredoc_end"), None)
        raw = self._shown(start) if start else ""
        match = _DELIMITER.fullmatch(raw)
        if start is None or end is None or match is None:
            raise NotUnderstood("where a here-document ends is not certain")
        quoted = raw[0] in "'\"\\"
        found = heredoc_end(
            self.source.decode("latin-1"),
            start.end_byte,
            match[2] or match[3],
            tabs=node.children[0].type == "<<-",
            quoted=quoted,
        )
        if found != end.start_byte:
            raise NotUnderstood("where a here-document ends is not certain")
        for child in node.children:
            if child.type == "heredoc_body":
                self._heredoc_body(child, depth, quoted=quoted)
            elif child.is_named and child.type not in ("heredoc_start", "heredoc_end"):
                self._visit(child, depth + 1)

    def _heredoc_body(self, node: Node, depth: int, *, quoted: bool) -> None:
        if quoted:
            return
        at = node.start_byte
        for child in [*node.named_children, None]:
            until = child.start_byte if child else node.end_byte
            text = self.source[at:until].decode("utf-8", "replace").replace("\\\\", " ")
            if child is None or child.type != "heredoc_content":
                if _EXPANDED.search(text):
                    raise NotUnderstood("a here-document that could be expanded")
                at = child.end_byte if child else until
            if child and child.type != "heredoc_content":
                self._word(child, depth, quoted=True)

    def _fed(self, children: Iterable[Node]) -> str | None:
        """The text a here-document gives a command, where it is given as it is written."""
        for child in children:
            if child.type == "heredoc_redirect":
                body = next((one for one in child.children if one.type == "heredoc_body"), None)
                return self._shown(body) if body and not body.named_children else None
        return None
