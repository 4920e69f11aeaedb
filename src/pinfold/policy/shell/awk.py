"""Whether an awk program only prints: it can also write files (`print > "f"`) and run programs (`system`, pipes)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pinfold.policy.shell.script import NotUnderstood, Word

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+|\\\n|\#[^\n]*) | (?P<string>"(?:[^"\\\n]|\\.)*") | (?P<number>\d+(?:\.\d*)?|\.\d+)
      | (?P<name>[A-Za-z_]\w*) | (?P<operator>\|\||&&|>>|>=|<=|==|!=|\+\+|--|[-+*/%^]=|[][(){};,!~<>=?:$+*%^|\n@-]) | (?P<slash>/)""",
    re.VERBOSE,
)
_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.)+/")
_KEYWORDS = frozenset(
    ["print", "printf", "return", "in", "BEGIN", "END", "if", "while", "for", "do", "else", "getline"]
)
_RUNS = frozenset(["system", "getline", "close", "fflush"])


def why_awk_writes(words: Sequence[Word]) -> str:
    try:
        _check(_program(words))
    except NotUnderstood as reason:
        return f"awk: {reason}"
    return ""


def _program(words: Sequence[Word]) -> str:
    at = 1
    while at < len(words):
        word = words[at]
        if word.text is None:
            raise NotUnderstood("its program cannot be told")
        if word.text in ("-F", "-v"):
            at += 2
        elif word.text.startswith(("-F", "-v")):
            at += 1
        elif word.text.startswith("-"):
            raise NotUnderstood(f"{word.text} may run something")
        else:
            break
    given = words[at : at + 1]
    if (
        not given
        or given[0].text is None
        or any(word.many and at > place for place, word in enumerate(words))
    ):
        raise NotUnderstood("its program cannot be told")
    return given[0].text


def _check(program: str) -> None:
    printing = False
    depth = 0
    for kind, text in _tokens(program):
        if kind == "name":
            if text in _RUNS:
                raise NotUnderstood(f"{text} may run something")
            if text in ("print", "printf"):
                printing, depth = True, 0
        elif kind == "operator":
            if text in ("|", "@"):
                raise NotUnderstood(f"{text!r} may run something")
            if text in (";", "\n", "}"):
                printing = False
            depth += (text == "(") - (text == ")")
            if printing and depth <= 0 and text in (">", ">>"):
                raise NotUnderstood("it prints into a file")


def _tokens(program: str) -> Iterator[tuple[str, str]]:
    """Whether a slash divides or begins an expression depends on what stands before it; where that is not certain, stop."""
    at = 0
    before = ("operator", "")
    while at < len(program):
        match = _TOKEN.match(program, at)
        if match is None:
            raise NotUnderstood("its program is not understood")
        kind, text = match.lastgroup or "", match[0]
        if text in ("/", "/="):
            if (
                before[0] in ("number", "string")
                or before[1] == "]"
                or (before[0] == "name" and before[1] not in _KEYWORDS)
            ):
                kind = "operator"
            elif before[1] in (")", "++", "--", "$"):
                raise NotUnderstood("where its expressions begin")
            else:
                regex = _REGEX.match(program, at) or _bracketed(program, at)
                kind, text = "regex", regex[0]
        at += len(text)
        if kind != "space":
            before = (kind, text)
            yield before


def _bracketed(program: str, at: int) -> re.Match[str]:
    """With brackets: only those that hold neither slash nor bracket nor quote."""
    match = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?[^]/\[\"\\\n]+\])+/").match(program, at)
    if match is None:
        raise NotUnderstood("where its expressions end")
    return match
