"""Looks up in `commands.toml` whether a simple command runs others, writes, or does harm outside the workspace.

A wrong guess costs a question or a second run: the sandbox enforces that a command expected to read only reads.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pinfold.policy.lists import Wrapper, lists, matches_any, secret_pattern, skip_options
from pinfold.policy.shell.script import Command, Word, base_name

_ASKS = ("--version", "--help", "-version")
_ASKS_SHORT = ("-V", "-v", "-h", "version", "help")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_AWK_WRITES = re.compile(r'\bsystem\b|print[^;}]*>|(?<!\|)\|\s*"|"\s*\|(?!\|)')
_TOP = ("/", "/home", "/tmp", "/mnt", "/Users")  # noqa: S108

_UNSEEN = "runs text that cannot be seen here"
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_FIND_WRITES = ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls")


class Inner(Struct, frozen=True, kw_only=True):
    """The commands that a command runs, as `find -exec` does."""

    why: str = ""
    """Why the outer command is expected to write, whatever the inner one does."""
    commands: tuple[tuple[Word, ...], ...] = ()
    perhaps: tuple[tuple[Word, ...], ...] = ()
    """Candidates for the inner command; which of them runs is unknown."""
    texts: tuple[str, ...] = ()
    """Text run by another shell."""
    danger: str = ""


def inner_of(words: Sequence[Word], fed: str | None) -> Inner | None:
    """Return what a command runs besides itself, or None. `fed` is its here-document."""
    name = base_name(words[0].text or "")
    known = lists()
    if len(words) == 2 and words[1].text in ("--version", "--help"):
        return None
    if name in known.shells:
        return _shell(name, words, fed)
    match name:
        case "find":
            return _find(words)
        case "eval":
            texts = [word.text for word in words[1:]]
            if None in texts:
                return Inner(why=f"eval {_UNSEEN}", danger=f"eval {_UNSEEN}")
            return Inner(texts=(" ".join(text or "" for text in texts),))
        case "source" | ".":
            return Inner(why=f"{name} runs a file", danger=_unseen_file(words))
        case "command" if len(words) > 1 and words[1].text in ("-v", "-V"):
            return None
        case _:
            wrapper = known.wrappers.get(name)
            return _unwrap_command(name, wrapper, words) if wrapper else None


def _unwrap_command(name: str, wrapper: Wrapper, words: Sequence[Word]) -> Inner:
    at, is_known = 1, True
    while at < len(words) and (text := words[at].text or "").startswith("-"):
        at += 1
        if text == "--":
            break
        flag = text.partition("=")[0]
        is_known = is_known and (flag in wrapper.flags or flag[:2] in wrapper.values or text[1:].isdecimal())
        at += flag in wrapper.values and "=" not in text
    if not is_known:
        # Behind an unknown flag the inner command may begin at any word.
        why = f"{name} may do more than it is told here"
        return Inner(why=why, perhaps=tuple(tuple(words[place:]) for place in range(1, min(len(words), 9))))
    while name == "env" and at < len(words) and "=" in (words[at].text or words[at].head):
        at += 1
    rest = tuple(words[at + wrapper.before :])
    why = f"{name} {wrapper.does}" if wrapper.does else ""
    if name in ("watch", "parallel"):
        return Inner(why=why, texts=(" ".join(word.text or word.shown for word in rest),))
    if name == "xargs":
        rest = _fill_xargs(words[1:at], rest or (Word("echo", "echo"),))
    return Inner(why=why, commands=(rest,) if rest else ())


def _fill_xargs(flags: Sequence[Word], rest: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the command that xargs runs, with unknown words where its input goes."""
    texts = [word.text or "" for word in flags]
    marks = [texts[at + 1] for at, text in enumerate(texts[:-1]) if text == "-I"]
    marks += [text[2:] for text in texts if text.startswith("-I") and len(text) > 2]
    if not marks:
        return (*rest, Word("...", None))
    return tuple(_unknown_from(word, marks[0]) for word in rest)


def _unknown_from(word: Word, mark: str, instead: str = "") -> Word:
    before, found, _ = (word.text or "").partition(mark)
    return Word(word.shown, None, before or instead) if found else word


def _shell(name: str, words: Sequence[Word], fed: str | None) -> Inner:
    at, takes_text = 1, False
    while at < len(words) and not takes_text and (text := words[at].text or "").startswith(("-", "+")):
        takes_text = not text.startswith("--") and "c" in text
        at += 2 if text in ("-o", "+o", "-O") else 1
    if takes_text:
        if at >= len(words) or words[at].text is None:
            return Inner(why=f"{name} {_UNSEEN}", danger=f"{name} {_UNSEEN}")
        return Inner(texts=(words[at].text or "",))
    if at < len(words) and words[at].text not in ("-", "-s"):
        return Inner(why=f"{name} runs a file", danger=_unseen_file(words[at - 1 :]))
    if fed is not None:
        return Inner(texts=(fed,))
    return Inner(why=f"{name} {_UNSEEN}", danger=f"{name} {_UNSEEN}")


def _unseen_file(words: Sequence[Word]) -> str:
    unknown = len(words) > 1 and words[1].text is None and not words[1].head
    return f"{words[0].text} {_UNSEEN}" if unknown else ""


def _find(words: Sequence[Word]) -> Inner:
    commands: list[tuple[Word, ...]] = []
    places = (word.text or word.head for word in words[1:])
    far = next((place for place in places if place.startswith(("/", "~", ".."))), "./")
    at, why = 1, ""
    while at < len(words):
        text = words[at].text
        at += 1
        if text in _FIND_RUNS:
            end = next((i for i in range(at, len(words)) if words[i].text in (";", "+")), len(words))
            commands.append(tuple(_unknown_from(word, "{}", far) for word in words[at:end]))
            at = end + 1
        elif text in _FIND_WRITES:
            why = f"find {text} writes"
    return Inner(why=why, commands=tuple(command for command in commands if command))


def why_it_writes(words: Sequence[Word]) -> str:
    """Return why a command is expected to write; empty if it is expected to read."""
    known = lists()
    if words[0].text is None:
        return f"which command {words[0].shown} means is only known when it runs"
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
    """Return whether a flag is given: `-o` in `-o`, `-no` and `-ofile`; `--output` in `--output=x` and in `--out`."""
    if len(flag) == 2 and flag[0] == "-":
        return any(text[:1] == "-" and text[:2] != "--" and flag[1] in text[1:] for text in texts)
    names = [text.partition("=")[0] for text in texts]
    return any(name == flag or (len(name) > 4 and name[:2] == "--" and flag.startswith(name)) for name in names)


def _why_subcommand_writes(name: str, forms: frozenset[str], texts: Sequence[str]) -> str:
    """`forms` are the subcommands that read: `a`, `a:b` in two words, `a.` if it reads only without operands."""
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
    """Return why the command may do harm outside the workspace, where nothing can be undone; empty if it cannot."""
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
    """Return a danger that no single command shows: one fetches and another runs the result. Empty if there is none."""
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
    """Return where a path lies if it is certainly not in the workspace; empty if it may be."""
    known = lists()
    if word.text is None and word.shown.lstrip('"').startswith(("$HOME", "${HOME}", "$OLDPWD")):
        return "outside the workspace"
    path = word.head if word.text is None else word.text
    if path.startswith("~"):
        return "in a home folder"
    clean = posixpath.normpath(path).replace("//", "/") if path else ""  # normpath keeps two leading slashes
    is_out = clean == ".." or clean.startswith("../") or clean in _TOP or _lies_in(clean, known.outside)
    return "outside the workspace" if is_out and not _lies_in(clean, known.devices) else ""


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def deletion_targets(words: Sequence[Word]) -> list[str]:
    """Return the paths a command deletes, as they are written."""
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
    """Return the first word whose beginning is unknown, file patterns apart."""
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
