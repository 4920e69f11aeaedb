"""The tables of `commands.toml`, loaded once and only when a shell command is to be judged."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import cache
from importlib.resources import files
from typing import cast

from msgspec import Struct

from pinfold.events import Json, convert


class Wrapper(Struct, frozen=True, kw_only=True):
    """A command that runs another command, given in its arguments."""

    flags: frozenset[str]
    values: frozenset[str] = frozenset()
    """Flags whose value is the rest of the word, or the next word."""
    before: int = 0
    """Words between the flags and the command."""
    does: str = ""


class Lists(Struct, frozen=True, kw_only=True):
    """The tables of `commands.toml`, which explains each."""

    any: frozenset[str]
    builtins: frozenset[str]
    versions: frozenset[str]
    awks: frozenset[str]
    unless: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, tuple[str, ...]]
    sub: Mapping[str, frozenset[str]]
    wrappers: Mapping[str, Wrapper]
    shells: frozenset[str]
    interpreters: frozenset[str]
    fetchers: frozenset[str]
    remote: frozenset[str]
    writers: frozenset[str]
    writers_last: frozenset[str]
    deleters: frozenset[str]
    dangerous: tuple[str, ...]
    system: frozenset[str]
    outside: tuple[str, ...]
    devices: tuple[str, ...]
    secrets: tuple[str, ...]
    option_values: Mapping[str, frozenset[str]]
    prefixes: frozenset[tuple[str, ...]]
    never: frozenset[str]


@cache
def lists() -> Lists:
    return convert(_split_words(tomllib.loads((files("pinfold.policy") / "commands.toml").read_text("utf-8"))), Lists)


def _split_words(value: Json) -> Json:
    """Split every string into a list of words, except a wrapper's `does`."""
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return [_split_words(item) for item in cast("list[Json]", value)]
    if isinstance(value, dict):
        table = cast("dict[str, Json]", value)
        return {key: item if key == "does" else _split_words(item) for key, item in table.items()}
    return value


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@cache
def secret_pattern() -> re.Pattern[str]:
    return re.compile("|".join(map(translate, lists().secrets)))


def skip_options(name: str, words: Sequence[str], stop: Collection[str] = ()) -> int:
    """Return how many words are options before a command's subcommand, as in `git -C x push`."""
    valued = lists().option_values.get(name, frozenset())
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in stop:
        at += 2 if words[at] in valued else 1
    return at
