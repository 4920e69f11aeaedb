"""A shell command, parsed into the simple commands it runs."""

from __future__ import annotations

import re
import shlex
import unicodedata

from msgspec import Struct

LONGEST = 100_000
"""The most characters; a longer command is not parsed."""
BRACKETS = 1_500
"""The most brackets: the parser's time grows with the square of unmatched ones."""
HEREDOCS = 100
_WORD = r"""(?:[\w./:=,@%+-]|'[^'\n]*'|"[^"$`\\!\n]*")"""
_FILES = rf"(?:[\w./]{_WORD}*[*?](?:{_WORD}|[*?])*)"
_PLAIN = re.compile(rf"[ \t]*[\w./+'-]+(?:[ \t]+(?:{_FILES}|{_WORD}+))*[ \t\n]*", re.ASCII)
_SYSTEM = ("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/")


class Word(Struct, frozen=True):
    """One word of a command, as far as it is known before the shell has expanded it."""

    shown: str
    """The word as it was written."""
    text: str | None
    """What the command receives; None if that is not certain."""
    head: str = ""
    """The known beginning of the word, if the whole is not certain."""


class Command(Struct, frozen=True, kw_only=True):
    """A simple command, also from within a chain, a substitution, a loop or another command's arguments."""

    words: tuple[Word, ...]
    shown: str
    why: str = ""
    """Why it is expected to write; empty if it is expected to read."""
    harmless: bool = False
    """It changes nothing, whatever its arguments are."""

    @property
    def name(self) -> str:
        """The command's name; empty if it is not certain."""
        return self.words[0].text or "" if self.words else ""

    @property
    def reads_only(self) -> bool:
        return not self.why


class Script(Struct, frozen=True, kw_only=True):
    """A shell command, parsed as far as possible. It predicts; the sandbox enforces that a reading command reads."""

    commands: tuple[Command, ...] = ()
    """In the order they are written; a command run by another comes after it."""
    besides: tuple[str, ...] = ()
    """Effects outside the commands themselves: redirects, assignments, functions."""
    deletes: tuple[str, ...] = ()
    """Paths it deletes, where they are known."""
    why: str = ""
    """The first reason it is expected to write."""
    dangerous: str | None = None
    """Why it may do harm outside the workspace."""
    unparsed: bool = False
    """Part of it was not understood, so it may run more than `commands`."""
    unread: bool = False
    """Part of it was not parsed at all."""
    plain: tuple[str, ...] = ()
    """Its words, if it is one simple command in which the shell expands nothing but file patterns."""

    @property
    def reads_only(self) -> bool:
        """True if it is expected only to read."""
        return not self.why and not self.unparsed and self.dangerous is None


def base_name(name: str) -> str:
    """Return the program's name. Only a system folder is left out: other folders may hold any program of that name."""
    folder, slash, last = name.rpartition("/")
    return last if folder + slash in _SYSTEM else name


def plain_words(command: str) -> tuple[str, ...]:
    """Return the words of a simple command without expansions (except file patterns), operators, assignments; else ().

    Grants depend on this and not on the parser, which sometimes guesses.
    """
    if not _PLAIN.fullmatch(command):
        return ()
    try:
        return tuple(shlex.split(command))
    except ValueError:  # an unclosed quote within the first word
        return ()


def why_unread(text: str) -> str:
    if len(text) > LONGEST:
        return f"it is longer than {LONGEST:,} characters"
    if sum(text.count(bracket) for bracket in "()[{") > BRACKETS:
        return f"it has more than {BRACKETS:,} brackets"
    if text.count("<<") > HEREDOCS:
        return f"it has more than {HEREDOCS} here-documents"
    if text.isascii() and text.isprintable():
        return ""
    for character in set(text) - {"\n", "\t"}:
        kind = unicodedata.category(character)
        if kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or (kind == "Zs" and character != " "):
            return f"it has an invisible character (U+{ord(character):04X})"
    return ""
