"""What `commands.toml` knows, read once and only when a shell command is to be judged."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What a command may be given and still only read."""

    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    attached: frozenset[str] = frozenset()
    refuse: frozenset[str] | None = None
    """All flags but these are fine; None where only the listed ones are."""
    needs: frozenset[str] = frozenset()
    args: int | None = None
    unless: frozenset[str] = frozenset()
    first: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    needs_args: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A command that can be used without changing anything."""

    flags: Flags | None = None
    """None where nothing but a subcommand reads."""
    options: Flags = Flags()
    sub: Mapping[str, Flags]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    flags: Flags
    before: int = 0
    does: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    any: frozenset[str]
    versions: frozenset[str]
    readers: Mapping[str, Reader]
    find_tests: Mapping[str, int]
    harmless: tuple[str, ...]
    steering: tuple[str, ...]
    wrappers: Mapping[str, Wrapper]
    shells: frozenset[str]
    read_shells: frozenset[str]
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
    reads, dangerous, writers, programs = (
        table["reads"],
        table["dangerous"],
        table["writers"],
        table["programs"],
    )
    return Lists(
        any=_set(reads.pop("any")),
        versions=_set(reads.pop("versions")),
        readers={name: _reader(reads[given.get("like", name)]) for name, given in reads.items()},
        find_tests={
            test: int(count)
            for test, _, count in (one.rpartition("=") for one in table["find"]["tests"].split())
        },
        harmless=tuple(table["variables"]["harmless"].split()),
        steering=tuple(table["variables"]["steering"].split()),
        wrappers={
            name: Wrapper(flags=_flags(given), before=given["before"], does=given.get("does", ""))
            for name, given in table["wrappers"].items()
        },
        shells=_set(programs["shells"]),
        read_shells=_set(programs["read_shells"]),
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


def named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _reader(given: Mapping[str, Any]) -> Reader:
    of_its_own = given.keys() - {"options", "sub"}
    return Reader(
        flags=_flags(given) if of_its_own else None,
        options=_flags(given.get("options", {})),
        sub={name: _flags(flags) for name, flags in given.get("sub", {}).items()},
    )


def _flags(given: Mapping[str, Any]) -> Flags:
    return Flags(
        flags=_set(given.get("flags", "")),
        values=_set(given.get("values", "")),
        attached=_set(given.get("attached", "")),
        refuse=_set(given["refuse"]) if "refuse" in given else None,
        needs=_set(given.get("needs", "")),
        args=given.get("args"),
        unless=_set(given.get("unless", "")),
        first=tuple(given.get("first", "").split()),
        each=tuple(given.get("each", "").split()),
        needs_args=given.get("needs_args", False),
    )
