"""Code and diffs in the terminal's own sixteen colours, which suit any theme.

Code is highlighted line by line as it arrives. Diffs are by line, and by word where a line changed little; long diffs
are cut in the middle.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from pinfold.front.chat.renderers.transcript import HangingText, LineSanitizer

if TYPE_CHECKING:
    from collections.abc import Iterable


LONGEST = 500
"""Longest line that is highlighted, in characters; some lexers are slow on longer ones."""
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
"""All names of the languages that are coloured. Some other lexers take a second for one line."""


class Highlighter:
    """Highlights one piece of code, line by line."""

    def __init__(self, language: str) -> None:
        found = _lexer_class(language)
        self._lexer = found() if found else None
        self._stack: list[str] = ["root"]
        self._shown = LineSanitizer()

    def line(self, source: str) -> Text | None:
        """Return the highlighted line; None if no part of it may be shown."""
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
        """Return the unfinished next line made safe, without colours."""
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
    """Return the highlighted code, line by line."""
    lines = Highlighter(language)
    return [text for line in code.split("\n") if (text := lines.line(line)) is not None]


def language_of(path: str) -> str:
    """Return the language by the file's name; empty if unknown."""
    from pygments.lexers import find_lexer_class_for_filename
    from pygments.util import ClassNotFound

    try:
        found: Any = find_lexer_class_for_filename(path[-200:])
    except ClassNotFound:
        return ""
    return str(found.aliases[0]) if found and found.aliases else ""


@lru_cache(64)
def _lexer_class(language: str) -> Any:
    """Return a lexer; if possible, one that can stop at the end of a line and continue with the next."""
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


LINES = 40
"""Lines of a diff that are shown; a longer one is cut in the middle."""
LARGEST = 100_000
"""Longest text that is compared, in characters; more would be slow."""
_MOST_LINES = 2000
_WORDS = re.compile(r"\w+|\s+|.")
_WORDY = 400
"""Longest line that is compared by word, in characters."""
_ALIKE = 0.5
_PAIRED = 3000
"""Most pairs of equal words in two lines that are compared by word; more would be slow."""


def compute_diff(before: str, after: str) -> str | None:
    """Return a unified diff without its heading; None if that would take too long."""
    old, new = _lines(before), _lines(after)
    if max(len(before), len(after)) > LARGEST or max(len(old), len(new)) > _MOST_LINES:
        return None
    return "\n".join([*difflib.unified_diff(old, new, n=2, lineterm="")][2:])


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def describe_size(diff: str) -> str:
    lines = [line for line in diff.split("\n") if not line.startswith(("+++ ", "--- "))]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added:,} -{removed:,}"


def render_diff(diff: str, *, most: int = LINES, indent: str = "    ") -> list[RenderableType]:
    """Render at most `most` lines of a unified diff."""
    shown = LineSanitizer()
    lines = [line for one in diff.rstrip("\n").split("\n") if (line := _presentable(one, shown)) is not None]
    return [HangingText(line, indent) for line in elide_lines(colour_lines(lines), most)]


def elide_lines(lines: list[Text], most: int) -> list[Text]:
    """Return only the first and last lines if there are more than `most`."""
    if len(lines) <= most + 1:
        return lines
    head, tail = most * 2 // 3, most - most * 2 // 3
    more = Text(f"... {len(lines) - most:,} lines more", "dim italic")
    return [*lines[:head], more, *lines[-tail:]]


def colour_lines(lines: Sequence[str]) -> list[Text]:
    """Colour the lines of a diff, which must already be safe for a terminal."""
    return _style_lines(lines) if len(lines) <= _MOST_LINES else [Text(line) for line in lines]


def _presentable(line: str, shown: LineSanitizer) -> str | None:
    """Make a line safe apart from its sign, because a secret right behind the sign would not be recognised."""
    sign = line[:1] if line[:1] in "+- " and not line.startswith(("+++ ", "--- ", "-----B", "-----E")) else ""
    rest = shown.line(line[len(sign) :])
    return None if rest is None else sign + rest


def _style_lines(lines: Sequence[str]) -> list[Text]:
    done: list[Text] = []
    at = 0
    while at < len(lines):
        removed = _run(lines, at, "-")
        added = _run(lines, at + len(removed), "+")
        if removed and len(removed) == len(added):
            pairs = [_pair(old, new) for old, new in zip(removed, added, strict=True)]
            done += [old for old, _ in pairs] + [new for _, new in pairs]
            at += 2 * len(removed)
        elif removed:
            done += [_line(line) for line in removed]
            at += len(removed)
        else:
            done.append(_line(lines[at]))
            at += 1
    return done


def _run(lines: Sequence[str], at: int, sign: str) -> list[str]:
    run: list[str] = []
    while at < len(lines) and lines[at].startswith(sign) and not lines[at].startswith(sign * 3 + " "):
        run.append(lines[at])
        at += 1
    return run


def _line(line: str) -> Text:
    if line.startswith(("--- ", "+++ ", "diff ", "index ", "*** ")):
        return Text(line, "bold")
    style = {"+": "green", "-": "red", "@": "cyan dim"}.get(line[:1], "dim")
    return Text(line.expandtabs(4), style)


def _pair(old: str, new: str) -> tuple[Text, Text]:
    """Render a line before and after a change; differing words are highlighted if most are the same."""
    if max(len(old), len(new)) > _WORDY:
        return _line(old), _line(new)
    words, others = _WORDS.findall(old[1:]), _WORDS.findall(new[1:])
    there = Counter(others)
    if sum(there[word] for word in words) > _PAIRED:
        return _line(old), _line(new)
    match = difflib.SequenceMatcher(None, words, others, autojunk=False)
    if match.ratio() < _ALIKE:
        return _line(old), _line(new)
    left, right = _line("-"), _line("+")
    for kind, a, b, c, d in match.get_opcodes():
        stress = "" if kind == "equal" else " reverse"
        left.append("".join(words[a:b]), f"red{stress}")
        right.append("".join(others[c:d]), f"green{stress}")
    return left, right
