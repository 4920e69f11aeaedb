"""The one way into this folder."""

from __future__ import annotations

import re
import shlex
import unicodedata
from functools import lru_cache

from pinfold.policy.shell.script import Script

LONGEST = 100_000
"""Characters; more is not read."""
BRACKETS = 1_500
"""As many; the parser's time grows with the square of those that do not match."""
HEREDOCS = 100
_WORD = r"""(?:[\w./:=,@%+-]|'[^'\n]*'|"[^"$`\\!\n]*")"""
_FILES = rf"(?:[\w./]{_WORD}*[*?](?:{_WORD}|[*?])*)"
_PLAIN = re.compile(rf"[ \t]*[\w./+'-]+(?:[ \t]+(?:{_FILES}|{_WORD}+))*[ \t\n]*", re.ASCII)


@lru_cache(maxsize=512)
def read_script(command: str) -> Script:
    """What a shell would run. Never raises: what is not understood says so."""
    # Parser, lists and expressions take 0.1 s to load, and most sessions have no shell command.
    from pinfold.policy.shell.tree import Tree

    tree = Tree()
    if reason := _why_unread(command):
        tree.stop(reason)
    else:
        tree.read(command, 0)
    return tree.script(plain_words(command))


def plain_words(command: str) -> tuple[str, ...]:
    """The words of one simple command, by its characters alone: no expansion but of file patterns, no operator, no assignment.

    What a user has allowed for longer than once rests on this, and not on the parser, which guesses where it must.
    """
    if not _PLAIN.fullmatch(command):
        return ()
    try:
        return tuple(shlex.split(command))
    except ValueError:  # a quote within the first word that does not end
        return ()


def _why_unread(text: str) -> str:
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
