"""Highlights code line by line as it arrives, in the terminal's own sixteen colours, which suit any theme."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rich.text import Text

from pinfold.front.chat.renderers.transcript import LineSanitizer

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 500
"""Characters of a highlighted line; some lexers take long for more."""
_STYLES = (
    ("Token.Comment", "dim italic"),
    ("Token.Keyword", "magenta"),
    ("Token.Operator.Word", "magenta"),
    ("Token.Literal.String.Interpol", "yellow"),
    ("Token.Literal.String", "green"),
    ("Token.Literal.Number", "cyan"),
    ("Token.Name.Function", "blue"),
    ("Token.Name.Class", "blue bold"),
    ("Token.Name.Decorator", "yellow"),
    ("Token.Name.Builtin", "cyan"),
    ("Token.Name.Exception", "red"),
    ("Token.Name.Tag", "blue"),
    ("Token.Name.Attribute", "cyan"),
    ("Token.Generic.Deleted", "red"),
    ("Token.Generic.Inserted", "green"),
    ("Token.Generic.Heading", "bold"),
)
_NAME = re.compile(r"[\w+#.-]{1,30}")
_NAMES = (
    "bash c c++ cmake console cpp csharp css dart diff docker elixir go graphql haskell html ini java "
    "javascript json json5 julia jsx kotlin latex less lua markdown md objective-c perl php postgresql "
    "powershell ps1 protobuf py pycon python pytb r rb rs rst ruby rust scss sh shell sql swift tex toml ts "
    "tsx typescript udiff xml yaml zsh "
)
_KNOWN = frozenset(_NAMES.split())
"""Languages that are coloured, by all their names. The patterns of some of the many others take a second for one line."""


class Highlighter:
    """One piece of code, from its first line on."""

    def __init__(self, language: str) -> None:
        found = _lexer_class(language)
        self._lexer = found() if found else None
        self._stack: list[str] = ["root"]
        self._shown = LineSanitizer()

    def line(self, source: str) -> Text | None:
        """None if nothing of the line may be shown."""
        shown = self._shown.line(source)
        if shown is None:
            return None
        if self._lexer is None or len(shown) > LONGEST:
            return Text(shown)
        text = Text()
        for kind, part in self._tokens(shown + "\n"):
            text.append(part, _style(kind))
        text.rstrip()
        return text

    def partial_line(self, source: str) -> str:
        """The beginning of the next line, without colours."""
        return self._shown.partial_line(source)

    def _tokens(self, line: str) -> Iterable[tuple[Any, str]]:
        from pygments.lexer import ExtendedRegexLexer, LexerContext

        if isinstance(self._lexer, ExtendedRegexLexer):
            context: Any = LexerContext(line, 0, self._stack)
            try:
                tokens = [(kind, part) for _, kind, part in self._lexer.get_tokens_unprocessed(None, context)]
            except (TypeError, AttributeError, KeyError, IndexError):
                # Some lexers have rules that cannot stop at the end of a line.
                self._lexer = None
                return [("Token.Text", line)]
            self._stack = context.stack[-50:] or ["root"]
            return tokens
        assert self._lexer is not None
        return [(kind, part) for _, kind, part in self._lexer.get_tokens_unprocessed(line)]


def highlight_code(code: str, language: str) -> list[Text]:
    """All of it, by line."""
    lines = Highlighter(language)
    return [text for line in code.split("\n") if (text := lines.line(line)) is not None]


def language_of(path: str) -> str:
    """The language by the file's name; empty if unknown."""
    from pygments.lexers import find_lexer_class_for_filename
    from pygments.util import ClassNotFound

    try:
        found: Any = find_lexer_class_for_filename(path[-200:])
    except ClassNotFound:
        return ""
    return str(found.aliases[0]) if found and found.aliases else ""


@lru_cache(64)
def _lexer_class(language: str) -> Any:
    """A lexer that can stop at the end of a line and continue with the next, if the language allows it."""
    from pygments.lexer import ExtendedRegexLexer, RegexLexer
    from pygments.lexers import find_lexer_class_by_name
    from pygments.util import ClassNotFound

    name = _NAME.match(language.strip().lower())
    if name is None or name.group() in ("text", "plain", "txt", "output"):
        return None
    try:
        found: Any = find_lexer_class_by_name(name.group())
    except ClassNotFound:
        return None
    if _KNOWN.isdisjoint(found.aliases):
        return None
    by_rules = issubclass(found, RegexLexer) and not issubclass(found, ExtendedRegexLexer)
    if by_rules and found.get_tokens_unprocessed is RegexLexer.get_tokens_unprocessed:
        return type(found.__name__, (ExtendedRegexLexer, found), {})
    return found


@lru_cache(512)
def _style(kind: object) -> str:
    name = str(kind)
    return next((style for begins, style in _STYLES if name.startswith(begins)), "")
