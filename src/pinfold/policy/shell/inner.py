"""Commands that run other commands, whose inner command is parsed as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pinfold.policy.lists import Wrapper, lists
from pinfold.policy.shell.script import Word, base_name

_UNSEEN = "runs text that cannot be seen here"
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_FIND_WRITES = ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """What a command runs besides itself."""

    why: str = ""
    """Why the outer command is expected to write, whatever the inner one does."""
    commands: tuple[tuple[Word, ...], ...] = ()
    perhaps: tuple[tuple[Word, ...], ...] = ()
    """One of these is the command; which one is unknown."""
    texts: tuple[str, ...] = ()
    """Text run by another shell."""
    danger: str = ""


def inner_of(words: Sequence[Word], fed: str | None) -> Inner | None:
    """None if it runs only itself. `fed` is its here-document."""
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
        # Where the inner command begins is unknown: any word may be it.
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
    """The command of xargs, with unknown words from its input."""
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
