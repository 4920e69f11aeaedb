"""What `commands.toml` knows, read once and only when a shell command is to be judged."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """Runs the command that follows."""

    flags: frozenset[str]
    values: frozenset[str]
    """Flags that take the rest of the word, or the next word."""
    before: int = 0
    """Words between the flags and the command."""
    does: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
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
    secrets: re.Pattern[str]
    option_values: Mapping[str, frozenset[str]]
    prefixes: frozenset[tuple[str, ...]]
    never: frozenset[str]


@cache
def lists() -> Lists:
    table = tomllib.loads((files("pinfold.policy") / "commands.toml").read_text("utf-8"))
    reads, dangerous, writers, programs = (table["reads"], table["dangerous"], table["writers"], table["programs"])
    return Lists(
        any=_set(reads["any"]),
        builtins=_set(reads["builtins"]),
        versions=_set(reads["versions"]),
        awks=_set(reads["awks"]),
        unless={name: tuple(flags.split()) for name, flags in reads["unless"].items()},
        needs={name: tuple(flags.split()) for name, flags in reads["needs"].items()},
        sub={name: _set(forms) for name, forms in reads["sub"].items()},
        wrappers={
            name: Wrapper(
                flags=_set(given["flags"]),
                values=_set(given.get("values", "")),
                before=given["before"],
                does=given.get("does", ""),
            )
            for name, given in table["wrappers"].items()
        },
        shells=_set(programs["shells"]),
        interpreters=_set(programs["interpreters"]),
        fetchers=_set(programs["fetchers"]),
        remote=_set(programs["remote"]),
        writers=_set(writers["all"]),
        writers_last=_set(writers["last"]),
        deleters=_set(writers["deletes"]),
        dangerous=tuple(dangerous["commands"].split()),
        system=_set(dangerous["system"]),
        outside=tuple(dangerous["outside"].split()),
        devices=tuple(dangerous["devices"].split()),
        secrets=re.compile("|".join(map(translate, dangerous["secrets"].split()))),
        option_values={name: _set(flags) for name, flags in table["options"].items()},
        prefixes=frozenset(
            tuple(prefix.split())
            for line in table["patterns"]["prefixes"].split("\n")
            for prefix in line.split("|")
            if prefix
        ),
        never=_set(table["patterns"]["never"]),
    )


def matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())
