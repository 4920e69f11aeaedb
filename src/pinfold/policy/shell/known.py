"""Whether a simple command with these words only reads, by what `commands.toml` knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from pinfold.policy.lists import Flags, Reader, lists
from pinfold.policy.shell.awk import why_awk_writes
from pinfold.policy.shell.script import Word, base_name
from pinfold.policy.shell.sed import why_sed_writes

_ASKING = ("--version", "--help", "-V", "-version")


def why_it_writes(words: Sequence[Word]) -> str:
    """Empty if it only reads."""
    known = lists()
    if words[0].text is None:
        return f"which command {words[0].shown} is cannot be told"
    name = base_name(words[0].text)
    if len(words) == 2 and words[1].text in _ASKING and name in known.versions:
        return ""
    if name in known.any:
        return ""
    match name:
        case "find":
            return ""  # its actions are read as commands of their own
        case "sed" | "gsed":
            return why_sed_writes(words)
        case "awk" | "gawk" | "mawk" | "nawk":
            return why_awk_writes(words)
        case "test":
            return _why_test_writes(words)
        case "printf":
            first = words[1] if len(words) > 1 else None
            return "printf may set a variable" if first and first.may_be_flag and first.text != "--" else ""
        case "tar":
            return _why_tar_writes(words)
        case _:
            pass
    if (reader := known.readers.get(name)) is not None:
        return _why_reader_writes(name, reader, words)
    return _why_unknown(name)


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
    return f"{name} is not known to only read"


def _why_reader_writes(name: str, reader: Reader, words: Sequence[Word]) -> str:
    at = 1
    options: list[Word] = [words[0]]
    while at < len(words) and (words[at].text or "").startswith("-") and reader.sub:
        options.append(words[at])
        at += 1
    sub = words[at].text if at < len(words) else None
    if reader.sub and sub is not None and sub in reader.sub:
        if name == "git" and [word.text for word in words[1:]] == [sub, "-h"]:
            return ""
        if why := why_flags_write(name, reader.options, options):
            return why
        return why_flags_write(f"{name} {sub}", reader.sub[sub], words[at:])
    if reader.flags is not None:
        return why_flags_write(name, reader.flags, words)
    if at < len(words):
        return f"{name} {words[at].shown} is not known to only read"
    if len(options) == 1:
        return (
            f"{name} alone is not known to only read"
            if name not in ("git", "pip", "npm", "docker", "cargo")
            else ""
        )
    return why_flags_write(name, reader.options, options)


def why_flags_write(what: str, flags: Flags, words: Sequence[Word]) -> str:
    """`words[0]` is the command; the rest is held against its list."""
    seen: set[str] = set()
    rest: list[Word] = []
    at, only_words = 1, False
    while at < len(words):
        word = words[at]
        at += 1
        text = word.text
        if text is None and word.may_be_flag and not only_words:
            return f"{what}: {word.shown} may turn into a flag"
        if only_words or text is None or not text.startswith(("-", "+")) or text in ("-", "+"):
            rest.append(word)
            continue
        if text == "--":
            only_words = True
            continue
        if text[0] == "+" and text not in flags.flags:
            rest.append(word)
            continue
        taken = _flag(flags, text, seen)
        if taken is None:
            return f"{what} {text} may write"
        if taken:
            if at < len(words) and words[at].many:
                return f"{what} {text}: what it is given cannot be told"
            at += 1
    return _why_words(what, flags, seen, rest)


def _why_words(what: str, flags: Flags, seen: set[str], rest: Sequence[Word]) -> str:
    if flags.needs and not flags.needs & seen:
        return f"{what} writes unless it is given one of {' '.join(sorted(flags.needs))}"
    if (
        flags.args is not None
        and not flags.unless & seen
        and (len(rest) > flags.args or any(w.many for w in rest))
    ):
        return f"{what} with {rest[-1].shown} may write"
    if flags.needs_args and not rest:
        return f"{what} alone may write"
    for word in rest[:1]:
        if flags.first and not _is_one_of(word, flags.first):
            return f"{what} {word.shown} is not known to only read"
    for word in rest:
        if flags.each and not _is_one_of(word, flags.each):
            return f"{what} {word.shown} is not known to only read"
    return ""


def _is_one_of(word: Word, patterns: Sequence[str]) -> bool:
    if word.text is None:
        return any(pattern.endswith("*") and word.head.startswith(pattern[:-1]) for pattern in patterns)
    return any(fnmatchcase(word.text, pattern) for pattern in patterns)


def _flag(flags: Flags, text: str, seen: set[str]) -> bool | None:
    """Whether the flag takes the next word; None if it is refused."""
    name = text.partition("=")[0]
    seen.add(name)
    if flags.refuse is not None:
        return None if _is_refused(flags.refuse, name) else False
    if name in flags.flags or name in flags.attached:
        return False
    if name in flags.values:
        return "=" not in text
    if text.startswith("--"):
        return None
    for place, letter in enumerate(text[1:], 1):
        flag = f"-{letter}"
        seen.add(flag)
        if flag in flags.attached:
            return False
        if flag in flags.values:
            return place == len(text) - 1
        if flag not in flags.flags:
            return None
    return False


def _is_refused(refuse: frozenset[str], name: str) -> bool:
    if name.startswith("--"):
        # An abbreviation will do: --out is --output.
        return any(flag.startswith(name) for flag in refuse if flag.startswith("--"))
    return name in refuse or any(f"-{letter}" in refuse for letter in name[1:])


def _why_test_writes(words: Sequence[Word]) -> str:
    """`-v` evaluates the name it is given, and a word that is not known may be that flag."""
    given = words[1:]
    loose = [word.text is None for word in given]
    pairs = any(left and right for left, right in pairwise(loose))
    flag = any(word.text in ("-v", "-R") or word.splits for word in given)
    return "test may evaluate a name" if flag or pairs or (len(given) == 2 and loose[0]) else ""


def _why_tar_writes(words: Sequence[Word]) -> str:
    flags = lists().readers["tar"].flags
    assert flags is not None
    first = words[1] if len(words) > 1 else None
    if first and first.text and not first.text.startswith("-"):
        words = [words[0], Word(first.shown, f"-{first.text}"), *words[2:]]
    if any(":" in (word.text or "") for word in words):
        return "tar may reach another machine"
    return why_flags_write("tar", flags, words)
