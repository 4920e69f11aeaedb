"""Commands that run other commands: the command inside is read as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pinfold.policy.lists import Wrapper, lists
from pinfold.policy.shell.known import why_flags_write
from pinfold.policy.shell.script import Word, base_name

_UNSEEN = "runs text that cannot be seen here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """What a command runs besides itself."""

    why: str = ""
    """Why the outer one does not only read, whatever the inner one does."""
    commands: tuple[tuple[Word, ...], ...] = ()
    perhaps: tuple[tuple[Word, ...], ...] = ()
    """One of these is the command, and it cannot be told which."""
    texts: tuple[str, ...] = ()
    """For a shell of its own."""
    sets: tuple[str, ...] = ()
    """Variables."""
    alone: bool = False
    """They are the shell's own and no other program sees them."""
    danger: str = ""


def inner_of(words: Sequence[Word], fed: str | None) -> Inner | None:
    """None if it runs nothing but itself. `fed` is what a here-document gives it."""
    if words[0].text is None:
        return None
    name = base_name(words[0].text)
    known = lists()
    if name in known.shells:
        return _shell(name, words, fed)
    match name:
        case "find":
            return _find(words)
        case "eval":
            return _eval(words)
        case "source" | ".":
            return Inner(why=f"{name} runs a file", danger=_run_elsewhere(words))
        case "read":
            return _read(words)
        case "command" if len(words) > 1 and words[1].text in ("-v", "-V"):
            return Inner()
        case _:
            wrapper = known.wrappers.get(name)
            return _wrapped(name, wrapper, words) if wrapper else None


def _wrapped(name: str, wrapper: Wrapper, words: Sequence[Word]) -> Inner:
    at = _after_flags(wrapper, words)
    if why := why_flags_write(name, wrapper.flags, words[:at]):
        # Its flags are not known, so neither is where the command begins: every word may be it.
        return Inner(why=why, perhaps=tuple(tuple(words[place:]) for place in range(1, min(len(words), 9))))
    sets: list[str] = []
    if name == "env":
        while at < len(words) and "=" in (words[at].text or words[at].head):
            sets.append((words[at].text or words[at].head).partition("=")[0])
            at += 1
    at += wrapper.before
    rest = tuple(words[at:])
    why = f"{name} {wrapper.does}" if wrapper.does else ""
    if name == "watch":
        return Inner(why=why, texts=(" ".join(word.text or word.shown for word in rest),))
    if name == "xargs":
        rest = _filled(words[1:at], rest or (Word("echo", "echo"),))
    return Inner(why=why, commands=(rest,) if rest else (), sets=tuple(sets))


def _after_flags(wrapper: Wrapper, words: Sequence[Word]) -> int:
    at = 1
    while at < len(words):
        text = words[at].text or ""
        if text == "--":
            return at + 1
        if not text.startswith("-"):
            return at
        at += 2 if text in wrapper.flags.values else 1
    return at


def _filled(flags: Sequence[Word], rest: tuple[Word, ...]) -> tuple[Word, ...]:
    """What xargs runs: with words from its input, which may be anything, flags included."""
    mark = ""
    for place, word in enumerate(flags):
        text = word.text or ""
        if text == "-I" and place + 1 < len(flags):
            mark = flags[place + 1].text or ""
        elif text.startswith("-I"):
            mark = text[2:]
    if not mark:
        return (*rest, Word("...", None, many=True, splits=True))
    filled: list[Word] = []
    for word in rest:
        before, found, _ = (word.text or "").partition(mark)
        filled.append(Word(word.shown, None, head=before) if found else word)
    return tuple(filled)


def _shell(name: str, words: Sequence[Word], fed: str | None) -> Inner:
    if len(words) == 2 and words[1].text in ("--version", "--help"):
        return Inner()
    at, takes_text, plain = 1, False, name in lists().read_shells
    while at < len(words) and (words[at].text or "").startswith(("-", "+")):
        text = words[at].text or ""
        if text in ("-o", "+o", "-O"):
            at += 1
            plain = plain and at < len(words) and words[at].text == "pipefail"
        elif text.startswith("--"):
            plain = plain and text in ("--norc", "--noprofile")
        else:
            takes_text = takes_text or "c" in text
            plain = plain and set(text[1:]) <= set("ceux")
        at += 1
        if takes_text:
            break
    why = "" if plain else f"{name} may do more than it is told here"
    if takes_text:
        if at >= len(words) or words[at].text is None:
            return Inner(why=f"{name} {_UNSEEN}", danger=f"{name} {_UNSEEN}")
        return Inner(why=why, texts=(words[at].text or "",))
    if at < len(words) and words[at].text not in ("-", "-s"):
        return Inner(why=f"{name} runs a file", danger=_run_elsewhere(words[at - 1 :]))
    if fed is not None:
        return Inner(why=why, texts=(fed,))
    return Inner(why=f"{name} {_UNSEEN}", danger=f"{name} {_UNSEEN}")


def _run_elsewhere(words: Sequence[Word]) -> str:
    unknown = len(words) > 1 and words[1].text is None and not words[1].head
    return f"{words[0].text} {_UNSEEN}" if unknown else ""


def _eval(words: Sequence[Word]) -> Inner:
    if any(word.text is None for word in words[1:]):
        return Inner(why=f"eval {_UNSEEN}", danger=f"eval {_UNSEEN}")
    return Inner(texts=(" ".join(word.text or "" for word in words[1:]),))


def _read(words: Sequence[Word]) -> Inner:
    names: list[str] = []
    at = 1
    while at < len(words):
        text = words[at].text
        if text is None:
            return Inner(why=f"read into {words[at].shown} may set anything")
        if text in ("-p", "-n", "-N", "-t", "-d", "-u", "-i"):
            at += 1
        elif text.startswith("-") and not set(text[1:]) <= set("rsae"):
            return Inner(why=f"read {text} may do more than read")
        elif not text.startswith("-"):
            names.append(text)
        at += 1
    if not all(name.isidentifier() for name in names):
        return Inner(why="read may set anything")
    return Inner(sets=tuple(names), alone=True)


def _find(words: Sequence[Word]) -> Inner | None:
    tests = lists().find_tests
    commands: list[tuple[Word, ...]] = []
    places: list[str] = []
    at, expression = 1, False
    while at < len(words):
        word = words[at]
        text = word.text
        at += 1
        if text is None:
            if word.may_be_flag:
                return Inner(why=f"find: {word.shown} may turn into an action")
            continue
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(at, len(words)) if words[i].text in (";", "+")), len(words))
            given = words[at:end]
            commands.append(tuple(_found(one, places) for one in given))
            at = end + 1
            if not given or end == len(words):
                return Inner(why=f"find {text} is not understood", commands=tuple(commands))
        elif text in tests:
            expression = expression or text not in ("-L", "-P", "-H")
            if any(taken.many and not _ends_like_a_file(taken) for taken in words[at : at + tests[text]]):
                return Inner(why=f"find {text}: what it is given cannot be told", commands=tuple(commands))
            at += tests[text]
        elif text.startswith("-") or expression:
            return Inner(why=f"find {text} may write", commands=tuple(commands))
        else:
            places.append(text)
    return Inner(commands=tuple(commands))


def _ends_like_a_file(word: Word) -> bool:
    """`-name *.txt`, which the shell expands: no name that ends in .txt is one of find's actions."""
    tail = word.shown.rpartition("*")[2]
    return not word.splits and tail.startswith(".") and tail[1:].isalnum()


def _found(word: Word, places: Sequence[str]) -> Word:
    """A file that find found begins like one of the places it was sent to, never like a flag."""
    if word.text and "{}" in word.text:
        far = next((place for place in places if place.startswith(("/", "~", ".."))), "./")
        return Word(word.shown, None, head=word.text.partition("{}")[0] or far)
    return word
