"""Whether a sed script only prints: it can also write files (`w`) and run programs (`e`)."""

from __future__ import annotations

from collections.abc import Sequence

from pinfold.policy.shell.script import NotUnderstood, Word

_FLAGS = frozenset(
    [
        "-n",
        "-E",
        "-r",
        "-s",
        "-u",
        "-z",
        "--quiet",
        "--silent",
        "--regexp-extended",
        "--posix",
        "--debug",
        "--sandbox",
        "--null-data",
    ]
)
_PLAIN = frozenset("pdDqQgGhHnNPxlz=F{}")
_SUBSTITUTE = frozenset("gpiIMm0123456789")
_TEXT = frozenset("aic")


def why_sed_writes(words: Sequence[Word]) -> str:
    try:
        for script in _scripts(words):
            _check(script)
    except NotUnderstood as reason:
        return f"sed: {reason}"
    return ""


def _scripts(words: Sequence[Word]) -> list[str]:
    found: list[str] = []
    rest: list[Word] = []
    at, only_words = 1, False
    while at < len(words):
        word = words[at]
        at += 1
        text = word.text
        if text is None and word.may_be_flag and not only_words:
            raise NotUnderstood(f"{word.shown} may turn into a flag")
        if text is None or only_words or not text.startswith("-") or text == "-":
            rest.append(word)
        elif text == "--":
            only_words = True
        elif text in ("-e", "--expression", "-ne", "-Ee", "-nEe", "-nre"):
            found.append(_literal(words[at : at + 1]))
            at += 1
        elif text.startswith("--expression="):
            found.append(text.partition("=")[2])
        elif text not in _FLAGS and not all(f"-{letter}" in _FLAGS for letter in text[1:]):
            raise NotUnderstood(f"{text} may write")
    return found or [_literal(rest[:1])]


def _literal(words: Sequence[Word]) -> str:
    if not words or words[0].text is None:
        raise NotUnderstood("its script cannot be told")
    return words[0].text


def _check(script: str) -> None:
    at = 0
    while at < len(script):
        if script[at] in " \t\n;":
            at += 1
            continue
        at = _after_addresses(script, at)
        command = script[at : at + 1]
        at += 1
        if command == "s":
            at = _after_substitution(script, at)
        elif command == "y":
            at = _after_pair(script, at)
        elif command in _TEXT or command == "#":
            end = script.find("\n", at)
            # A text goes on in the next line after a backslash.
            if command != "#" and "\\" in script[at : len(script) if end < 0 else end] and end >= 0:
                raise NotUnderstood("its text goes over several lines")
            at = len(script) if end < 0 else end
        elif command in ("b", "t", "T", ":"):
            at = _after_label(script, at)
        elif not command or command not in _PLAIN:
            raise NotUnderstood(f"its command {command!r} may write or run something")
        else:
            at = _after_plain(script, at, command)


def _after_plain(script: str, at: int, command: str) -> int:
    while command in "qQl" and at < len(script) and script[at] in " 0123456789":
        at += 1
    while at < len(script) and script[at] in " \t":
        at += 1
    if at < len(script) and command not in "{}" and script[at] not in ";\n}":
        raise NotUnderstood(f"what follows its command {command!r}")
    return at


def _after_label(script: str, at: int) -> int:
    while at < len(script) and script[at] in " \t":
        at += 1
    while at < len(script) and (script[at].isalnum() or script[at] == "_"):
        at += 1
    if at < len(script) and script[at] not in ";\n}":
        raise NotUnderstood("its labels")
    return at


def _after_addresses(script: str, at: int) -> int:
    while at < len(script):
        character = script[at]
        if character in "0123456789$,~+! \t":
            at += 1
        elif character == "/":
            at = _after_delimited(script, at + 1, "/")
            while at < len(script) and script[at] in "IM":
                at += 1
        elif character == "\\":
            raise NotUnderstood("an address with a delimiter of its own")
        else:
            break
    return at


def _after_pair(script: str, at: int) -> int:
    delimiter = script[at : at + 1]
    if not delimiter or delimiter in "\\\n" or delimiter.isalnum():
        raise NotUnderstood("its delimiters")
    return _after_delimited(script, _after_delimited(script, at + 1, delimiter), delimiter)


def _after_substitution(script: str, at: int) -> int:
    at = _after_pair(script, at)
    while at < len(script) and script[at] not in ";\n} \t":
        if script[at] not in _SUBSTITUTE:
            raise NotUnderstood(f"s///{script[at]} may write or run something")
        at += 1
    while at < len(script) and script[at] in " \t":
        at += 1
    if at < len(script) and script[at] not in ";\n}":
        raise NotUnderstood("what follows its substitution")
    return at


def _after_delimited(script: str, at: int, delimiter: str) -> int:
    """sed does not end at a delimiter inside brackets, other tools do: both readings must agree."""
    while at < len(script) and script[at] != delimiter:
        if script[at] == "[":
            close = script.find("]", at + 2)
            if delimiter in script[at : close if close >= 0 else len(script)]:
                raise NotUnderstood("where its expression ends")
        if script[at] == "\n":
            raise NotUnderstood("its expression goes over several lines")
        at += 2 if script[at] == "\\" else 1
    if at >= len(script):
        raise NotUnderstood("where its expression ends")
    return at + 1
