"""Whether a simple command is expected to write, by what `commands.toml` knows of it.

A wrong guess costs a question or a second run: what is expected to read is held to that by the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pinfold.policy.lists import lists
from pinfold.policy.shell.inner import Inner
from pinfold.policy.shell.script import Word, base_name

_ASKS = ("--version", "--help", "-version")
_ASKS_SHORT = ("-V", "-v", "-h", "version", "help")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_AWK_WRITES = re.compile(r'\bsystem\b|print[^;}]*>|(?<!\|)\|\s*"|"\s*\|(?!\|)')


def why_it_writes(words: Sequence[Word]) -> str:
    """Empty if it is expected to read."""
    known = lists()
    if words[0].text is None:
        return f"which command {words[0].shown} is cannot be told"
    name = base_name(words[0].text)
    texts = [word.text or word.head for word in words[1:]]
    asks = _ASKS + (_ASKS_SHORT if name in known.versions else ())
    if len(texts) == 1 and texts[0] in asks and "/" not in name:
        return ""
    if found := next((flag for flag in known.unless.get(name, ()) if _has(flag, texts)), ""):
        return f"{name} {found} writes"
    if name in known.awks:
        found = any(_AWK_WRITES.search(_TEXT.sub('""', text)) for text in texts)
        return f"{name} may write or run something" if found else ""
    if (flags := known.needs.get(name)) is not None:
        if name == "tar" and texts and not texts[0].startswith("-"):
            texts[0] = f"-{texts[0]}"
        return "" if any(_has(flag, texts) for flag in flags) else f"{name} may change files"
    if (forms := known.sub.get(name)) is not None:
        return _why_subcommand_writes(name, forms, texts)
    is_reader = name in known.any or name in known.builtins or name in known.unless
    return "" if is_reader else _why_unknown(name)


def is_harmless(words: Sequence[Word], inner: Inner | None) -> bool:
    name = base_name(words[0].text or "")
    if name == "env" and any("=" in word.shown for word in words):
        return False  # what it sets may steer what it runs
    return inner is not None or name in lists().any


def _has(flag: str, texts: Iterable[str]) -> bool:
    """`-o` is in `-o`, `-no` and `-ofile`; `--output` in `--output=x` and, abbreviated, in `--out`."""
    if len(flag) == 2 and flag[0] == "-":
        return any(text[:1] == "-" and text[:2] != "--" and flag[1] in text[1:] for text in texts)
    names = [text.partition("=")[0] for text in texts]
    return any(name == flag or (len(name) > 4 and name[:2] == "--" and flag.startswith(name)) for name in names)


def _why_subcommand_writes(name: str, forms: frozenset[str], texts: Sequence[str]) -> str:
    """A form is a subcommand; `a:b` is two words of it, `a.` one that is given no other words but flags."""
    valued = lists().option_values.get(name, frozenset())
    at = 0
    while at < len(texts) and texts[at].startswith("-") and texts[at] not in forms:
        if any(form.startswith(f"{texts[at]}:") for form in forms):
            break
        at += 2 if texts[at] in valued else 1
    if at >= len(texts):
        return "" if texts or name in lists().versions else f"{name} may change files"
    sub, rest = texts[at], texts[at + 1 :]
    given = [text for text in rest if not text.startswith("-")]
    if sub in forms or (rest and f"{sub}:{rest[0]}" in forms) or (f"{sub}." in forms and not given):
        return ""
    return f"{name} {sub} may change files"


def _why_unknown(name: str) -> str:
    known = lists()
    if name in known.deleters:
        return f"{name} deletes files"
    if name in known.writers or name in known.writers_last:
        return f"{name} changes files"
    if name in known.fetchers or name in known.remote:
        return f"{name} reaches other machines"
    if name in known.shells or name in known.interpreters:
        return f"{name} runs a program"
    if "/" in name:
        return f"{name} is a program of its own"
    return f"{name} may change files"
