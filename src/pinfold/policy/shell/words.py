"""Pieces of words as bash takes them apart, each checked against what bash itself would see there.

The grammar and the shell do not agree on everything. A piece that could mean something else to the shell raises
NotUnderstood, so that nothing hides behind the difference.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from pinfold.policy.shell.script import NotUnderstood, Word

LONGEST = 100_000
"""Characters; more is not read."""
BRACKETS = 1_500
"""As many; the parser's time grows with the square of those that do not match."""
HEREDOCS = 100
_META = frozenset(" \t\n;&|<>()'\"`")
_GLOB = frozenset("*?[")
_EXPANDS = re.compile(r"\$[\w({\[!#?*@$'\"-]", re.ASCII)
_SIMPLE_EXPANSION = re.compile(
    r"""\s*\$\{ (?:
        \#? (?: \w+ | [@*?] )
      | \#? [A-Za-z_]\w* \[ (?: [@*] | \d+ ) \]
      | (?: \w+ | [@*] ) (?: :?[-+] | \#\#? | %%? | //? | \^\^? | ,,? ) [\w./\ :,*?=@+~%-]*
      | \w+ : \d+ (?: : \d+ )?
    ) \}""",
    re.VERBOSE | re.ASCII,
)
_ARITHMETIC = re.compile(r"[\w\s+\-*/%()<>=!&|^~?:,$]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def strange(text: str) -> str:
    """Why the text is not even looked at, or nothing."""
    if len(text) > LONGEST:
        return f"it is longer than {LONGEST:,} characters"
    if sum(text.count(bracket) for bracket in "()[{") > BRACKETS:
        return f"it has more than {BRACKETS:,} brackets"
    if text.count("<<") > HEREDOCS:
        return f"it has more than {HEREDOCS} here-documents"
    if text.isascii() and text.isprintable():
        return ""
    for character in set(text):
        if character in "\n\t":
            continue
        kind = unicodedata.category(character)
        if kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or (kind == "Zs" and character != " "):
            return f"it has an invisible character (U+{ord(character):04X})"
    return ""


@dataclass(slots=True)
class Pieces:
    """A word in the making."""

    shown: str
    text: str = ""
    head: str | None = None
    many: bool = False
    splits: bool = False
    unquoted: str = ""

    def known(self, text: str) -> None:
        self.text += text

    def bare(self, raw: str) -> None:
        text, globs = unquoted(raw)
        before = len(self.text)
        self.text += text
        self.unquoted += raw
        if globs is not None:
            self.many = True
            self._open(self.text[: before + globs])

    def unknown(self, *, quoted: bool) -> None:
        self._open(self.text)
        if not quoted:
            self.many = self.splits = True

    def _open(self, head: str) -> None:
        if self.head is None:
            self.head = head

    def word(self) -> Word:
        if "{" in self.unquoted and "}" in self.unquoted and ("," in self.unquoted or ".." in self.unquoted):
            self.many = True
            self._open(self.text.partition("{")[0])
        if self.head is None:
            return Word(self.shown, self.text)
        return Word(self.shown, None, self.head, self.many, self.splits)


def unquoted(raw: str) -> tuple[str, int | None]:
    """The value of a word without quotes, and where in it the shell would look for files."""
    if "\\" not in raw and not _META.intersection(raw):
        text, bare = raw, raw
        globs = next((i for i, c in enumerate(raw) if c in _GLOB), None)
    else:
        out: list[str] = []
        kept: list[str] = []
        globs = None
        characters = iter(raw)
        for character in characters:
            if character == "\\":
                following = next(characters, "\n")
                if following == "\n":
                    raise NotUnderstood(f"{raw!r} goes on in another line")
                out.append(following)
                kept.append(" ")
                continue
            if character in _META:
                raise NotUnderstood(f"{raw!r} could be more than one word")
            if character in _GLOB and globs is None:
                globs = len(out)
            out.append(character)
            kept.append(character)
        text, bare = "".join(out), "".join(kept)
    if "$" in bare and _EXPANDS.search(bare):
        raise NotUnderstood(f"{raw!r} could be expanded")
    return text, globs


def raw_string(raw: str) -> str:
    inner = raw[1:-1]
    if len(raw) < 2 or raw[0] != "'" or raw[-1] != "'" or "'" in inner:
        raise NotUnderstood(f"{raw!r} could end elsewhere")
    return inner


def ansi_string(raw: str) -> str | None:
    """The value of $'...' where it has no escapes."""
    inner = raw[2:-1]
    # Another shell than bash ends it at the first quote.
    if not raw.startswith("$'") or not raw.endswith("'") or "'" in inner:
        raise NotUnderstood(f"{raw!r} could end elsewhere")
    return inner if "\\" not in inner else None


def string_content(raw: str) -> str:
    out: list[str] = []
    characters = iter(raw)
    plain: list[str] = []
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            if following == "\n":
                continue
            out.append(following if following in '$`"\\' else f"\\{following}")
            plain.append(" ")
            continue
        out.append(character)
        plain.append(character)
    rest = "".join(plain)
    if '"' in rest or "`" in rest or _EXPANDS.search(rest):
        raise NotUnderstood(f"{raw!r} could be expanded")
    return "".join(out)


def is_simple_expansion(raw: str) -> bool:
    """Whether ${...} gives a value and does nothing else: no indirection, no assignment, no evaluation."""
    return _SIMPLE_EXPANSION.fullmatch(raw) is not None


def arithmetic_names(raw: str) -> set[str] | None:
    """The variables of an arithmetic expression; None where it may run something.

    The shell evaluates what is in them once more, subscripts with substitutions included.
    """
    inner = raw.strip().removeprefix("$").removeprefix("((").removesuffix("))")
    depth = 0
    for character in inner:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return None
    if depth or "$(" in inner or not _ARITHMETIC.fullmatch(inner):
        return None
    return set(_NAME.findall(inner))


def heredoc_end(text: str, after: int, delimiter: str, *, tabs: bool, quoted: bool) -> int:
    """Where the line begins that ends a here-document whose `<<END` ends at `after`."""
    line_end = text.find("\n", after)
    rest = text[after:line_end]
    if line_end < 0 or "\\" in rest or "<<" in rest or rest.count('"') % 2 or rest.count("'") % 2:
        raise NotUnderstood("where a here-document begins is not certain")
    start = line_end + 1
    while start < len(text):
        stop = text.find("\n", start)
        line = text[start : len(text) if stop < 0 else stop]
        bare = line.lstrip("\t") if tabs else line
        if bare == delimiter:
            return start + len(line) - len(bare)
        if (line.endswith("\\") and not quoted) or stop < 0:
            break
        start = stop + 1
    raise NotUnderstood("where a here-document ends is not certain")
