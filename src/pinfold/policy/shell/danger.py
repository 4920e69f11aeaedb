"""Whether a command may do harm beyond the workspace, where nothing can be undone."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from pinfold.policy.lists import lists, matches_any
from pinfold.policy.shell.script import Command, Word, base_name


def danger_of(words: Sequence[Word], *, reads: bool) -> str:
    """Empty if there is none."""
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


def of_the_whole(commands: Sequence[Command]) -> str:
    """What no command shows by itself."""
    known = lists()
    names = {base_name(command.name) for command in commands}
    if not names & known.fetchers:
        return ""
    runs = known.shells | known.interpreters | {"eval", "source", ".", "xargs"}
    for command in commands:
        name = base_name(command.name)
        if name in runs and (len(command.words) == 1 or any(word.text in (None, "-") for word in command.words[1:])):
            return f"{name} runs what was fetched from another machine"
    return ""


def outside(word: Word) -> str:
    """Where a path lies that is surely not in the workspace; empty if it may be."""
    known = lists()
    path = word.text if word.text is not None else word.head
    if word.text is None and word.shown.lstrip('"').startswith(("$HOME", "${HOME}", "$OLDPWD")):
        return "outside the workspace"
    if not path:
        return ""
    if path.startswith("~"):
        return "in a home folder"
    if path.startswith("/"):
        clean = posixpath.normpath(path)
        if any(clean == device or clean.startswith(f"{device}/") for device in known.devices):
            return ""
        # "//" is a path of its own to normpath, and the root to everybody else.
        if clean in ("/", "//", "/home", "/tmp", "/mnt", "/Users"):  # noqa: S108
            return "outside the workspace"
        if any(clean == folder or clean.startswith(f"{folder}/") for folder in known.outside):
            return "outside the workspace"
        return ""
    return "outside the workspace" if posixpath.normpath(path).startswith("..") else ""


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
    if name in lists().deleters:
        return []
    return [word.text for word in _targets(name, words) if word.text]


def _targets(name: str, words: Sequence[Word]) -> list[Word]:
    known = lists()
    operands = _operands(words)
    if name in ("chmod", "chown", "chgrp", "chattr", "setfacl"):
        return operands[1:]
    if name in known.writers:
        return operands
    if name in known.writers_last and any((word.text or "").startswith(("-t", "--target")) for word in words):
        return operands
    if name in known.writers_last:
        return operands[-1:] if len(operands) > 1 else []
    if name == "sed":
        return operands[1:]
    if name == "find":
        return operands[:1]
    return []


def _operands(words: Sequence[Word]) -> list[Word]:
    return [word for word in words[1:] if word.text is None or not word.text.startswith("-")]


def _is_recursive(words: Sequence[Word]) -> bool:
    texts = [word.text or "" for word in words[1:]]
    return any(
        text == "--recursive" or (text.startswith("-") and text[1:2] != "-" and set("rR") & set(text)) for text in texts
    )


def _loose(words: Sequence[Word]) -> Word | None:
    return next(
        (word for word in words[1:] if word.text is None and not word.head and word.shown[:1] not in "*?["), None
    )


def _secret(name: str, words: Sequence[Word]) -> Word | None:
    if name in ("echo", "printf", "git"):
        return None
    secrets = lists().secrets
    for word in words[1:]:
        path = word.text or word.head
        if path and not path.startswith("-") and secrets.match(path.removeprefix("./")):
            return word
    return None
