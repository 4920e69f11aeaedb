"""Whether a simple command is expected to write, and whether it may do harm outside the workspace, by `commands.toml`.

A wrong guess costs a question or a second run: the sandbox enforces that a command expected to read only reads.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

from pinfold.policy.lists import lists, matches_any, secret_pattern, skip_options
from pinfold.policy.shell.inner import Inner
from pinfold.policy.shell.script import Command, Word, base_name

_ASKS = ("--version", "--help", "-version")
_ASKS_SHORT = ("-V", "-v", "-h", "version", "help")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_AWK_WRITES = re.compile(r'\bsystem\b|print[^;}]*>|(?<!\|)\|\s*"|"\s*\|(?!\|)')
# "//" is a path of its own to normpath, and the root to every program.
_TOP = ("/", "//", "/home", "/tmp", "/mnt", "/Users")  # noqa: S108


def why_it_writes(words: Sequence[Word]) -> str:
    """Empty if the command is expected to read."""
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
        return False  # a variable may change what the command does
    return inner is not None or name in lists().any


def _has(flag: str, texts: Iterable[str]) -> bool:
    """`-o` is in `-o`, `-no` and `-ofile`; `--output` in `--output=x` and, abbreviated, in `--out`."""
    if len(flag) == 2 and flag[0] == "-":
        return any(text[:1] == "-" and text[:2] != "--" and flag[1] in text[1:] for text in texts)
    names = [text.partition("=")[0] for text in texts]
    return any(name == flag or (len(name) > 4 and name[:2] == "--" and flag.startswith(name)) for name in names)


def _why_subcommand_writes(name: str, forms: frozenset[str], texts: Sequence[str]) -> str:
    """A form is a subcommand; `a:b` is two words of it, `a.` one that takes no other words but flags."""
    at = skip_options(name, texts, stop={form.partition(":")[0] for form in forms} | forms)
    if at >= len(texts):
        return "" if texts or name in lists().versions else f"{name} may change files"
    sub, rest = texts[at], texts[at + 1 :]
    given = [text for text in rest if not text.startswith("-")]
    if sub in forms or (rest and f"{sub}:{rest[0]}" in forms) or (f"{sub}." in forms and not given):
        return ""
    return f"{name} {sub} may change files"


def _why_unknown(name: str) -> str:
    known = lists()
    kinds = (
        (known.deleters, "deletes files"),
        (known.writers | known.writers_last, "changes files"),
        (known.fetchers | known.remote, "reaches other machines"),
        (known.shells | known.interpreters, "runs a program"),
    )
    other = "is a program of its own" if "/" in name else "may change files"
    return f"{name} {next((does for names, does in kinds if name in names), other)}"


def danger_of(words: Sequence[Word], *, reads: bool) -> str:
    """Why the command may do harm outside the workspace, where nothing can be undone; empty if it does not."""
    known = lists()
    name = base_name(words[0].text or "")
    if (secret := _secret(name, words)) is not None:
        return f"{secret.shown} may hold secrets"
    if reads:
        return ""
    if matches_any(name, known.dangerous):
        return f"{name} acts on the whole machine"
    if name in known.system:
        return f"{name} changes the system"
    if name == "kill" and words[-1].text == "-1":
        return "kills every process there is"
    for word in _targets(name, words):
        if where := outside(word) or ("a device" if name == "mv" and word.text in known.devices else ""):
            return f"{name} changes {word.shown}, {where}"
    if name in known.deleters and _is_recursive(words) and (loose := _loose(words)):
        return f"{name} deletes whatever {loose.shown} turns out to be"
    return ""


def danger_together(commands: Sequence[Command]) -> str:
    """A danger that no single command shows: one fetches and another runs the result."""
    known = lists()
    if not known.fetchers & {base_name(command.name) for command in commands}:
        return ""
    runs = known.shells | known.interpreters | {"eval", "source", ".", "xargs"}
    for command in commands:
        name = base_name(command.name)
        if name in runs and (len(command.words) == 1 or any(word.text in (None, "-") for word in command.words[1:])):
            return f"{name} runs what was fetched from another machine"
    return ""


def outside(word: Word) -> str:
    """Where a path lies that is certainly not in the workspace; empty if it may be."""
    known = lists()
    if word.text is None and word.shown.lstrip('"').startswith(("$HOME", "${HOME}", "$OLDPWD")):
        return "outside the workspace"
    path = word.head if word.text is None else word.text
    if path.startswith("~"):
        return "in a home folder"
    clean = posixpath.normpath(path) if path else ""
    is_out = clean.startswith("..") or clean in _TOP or _lies_in(clean, known.outside)
    return "outside the workspace" if is_out and not _lies_in(clean, known.devices) else ""


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def deletion_targets(words: Sequence[Word]) -> list[str]:
    """Paths a command deletes, as they are written."""
    name = base_name(words[0].text or "")
    texts = [word.text for word in words[1:]]
    if name in lists().deleters:
        return [word.shown if word.text is None else word.text for word in _operands(words) if word.shown != "..."]
    if name == "find" and "-delete" in texts:
        places = [text for text in texts[: texts.index("-delete")] if text is not None]
        first_test = next((i for i, text in enumerate(places) if text.startswith("-")), len(places))
        return places[:first_test] or ["."]
    if name == "git" and texts[:1] == ["clean"]:
        return [word.text for word in _operands(words[1:]) if word.text] or ["."]
    return []


def write_targets(words: Sequence[Word]) -> list[str]:
    name = base_name(words[0].text or "")
    return [] if name in lists().deleters else [word.text for word in _targets(name, words) if word.text]


def _targets(name: str, words: Sequence[Word]) -> list[Word]:
    known = lists()
    operands = _operands(words)
    if name in ("chmod", "chown", "chgrp", "chattr", "setfacl", "sed"):
        return operands[1:]
    if name in known.writers:
        return operands
    if name in known.writers_last:
        names_folder = any((word.text or "").startswith(("-t", "--target")) for word in words)
        return operands if names_folder else operands[1:][-1:]
    return operands[:1] if name == "find" else []


def _operands(words: Sequence[Word]) -> list[Word]:
    return [word for word in words[1:] if word.text is None or not word.text.startswith("-")]


def _is_recursive(words: Sequence[Word]) -> bool:
    return any(re.fullmatch(r"--recursive|-(?!-).*[rR].*", word.text or "", re.DOTALL) for word in words[1:])


def _loose(words: Sequence[Word]) -> Word | None:
    """A word of which not even the beginning is known."""
    unknown = (word for word in words[1:] if word.text is None and not word.head)
    return next((word for word in unknown if word.shown[:1] not in "*?["), None)


def _secret(name: str, words: Sequence[Word]) -> Word | None:
    if name in ("echo", "printf", "git"):
        return None
    for word in words[1:]:
        path = word.text or word.head
        if path and not path.startswith("-") and secret_pattern().match(path.removeprefix("./")):
            return word
    return None
