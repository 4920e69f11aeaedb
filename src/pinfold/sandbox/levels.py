"""What each level of isolation can and cannot do, as rows: for the documentation and for `doctor`. Starts nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pinfold.sandbox import Provider, provider_named
from pinfold.sandbox.contract import DATASETS, SERVERS

LEVELS = ("namespaces", "landlock", "unsafe-local")
"""From the strongest down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing a user may count on, and for each level whether it holds; where not quite, what is to be known."""

    what: str
    holds: dict[str, str]
    """By the name of the level: `yes`, `no`, or words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the capabilities do not say."""

    root: str
    secrets: str
    steering: str
    processes: str
    names: str
    memory: str
    count: str
    multiprocessing: str
    shared_memory: str
    needs: str


_FACTS = {
    "namespaces": _Facts(
        root="never as root",
        secrets="read as empty",
        steering="read-only; what a cell makes anew is removed after it",
        processes="its own only",
        names="unseen",
        memory="of the session as a whole",
        count="of the session",
        multiprocessing="yes",
        shared_memory="its own",
        needs="user namespaces",
    ),
    "landlock": _Facts(
        root="as the workspace's owner; where that is root, as root without its powers",
        secrets="the workspace is refused, or they can be read (`--allow-unmasked`)",
        steering="put back after each cell, with a notice; a folder with Pinfold's own installation is refused",
        processes="no signal, no look inside; that they exist can be found out",
        names="a path that is guessed can be checked for existence, size and times",
        memory="of the session as a whole",
        count="of the user as a whole; root's are counted four times a second",
        multiprocessing="processes and pipes; no locks, queues or pools",
        shared_memory="none",
        needs="Landlock (Linux 5.13); before 6.12 the session's init is asked about every signal",
    ),
    "unsafe-local": _Facts(
        root="as you",
        secrets="can be read",
        steering="can be written to",
        processes="all of yours",
        names="all of yours",
        memory="not bounded",
        count="not bounded",
        multiprocessing="yes",
        shared_memory="the machine's",
        needs="nothing",
    ),
}


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _data(provider: Provider) -> str:
    has = provider.capabilities
    if has.mounts:
        return f"at {DATASETS}/NAME"
    return "read-only, at its own path" if has.isolated else "no"


def _mounts(provider: Provider) -> str:
    has = provider.capabilities
    return "at their own path" if has.isolated and not has.remote else "no"


_CLAIMS: dict[str, Callable[[Provider, _Facts], str]] = {
    "files and processes outside are closed": lambda provider, _: _yes(provider.capabilities.isolated),
    "no network outside": lambda provider, _: _yes(provider.capabilities.isolated),
    "sockets of its own (a local web server)": lambda provider, _: _yes(provider.capabilities.sockets),
    "data given with `--data`": lambda provider, _: _data(provider),
    "tools as files to read": lambda provider, _: f"in {SERVERS}" if provider.capabilities.mounts else "no",
    "paths given with `--mount`": lambda provider, _: _mounts(provider),
    "packages installed for one session": lambda provider, _: _yes(provider.capabilities.site),
    "mode `read-only`": lambda provider, _: _yes(provider.capabilities.isolated),
    "branches of live data, undo in milliseconds": lambda provider, _: _yes(provider.capabilities.fork),
    "variables after a restart": lambda provider, _: _yes(provider.capabilities.durable),
    "a branch's own view of the files": lambda provider, _: _yes(provider.capabilities.files_view),
    "whose rights code has": lambda _, facts: facts.root,
    "secrets in the workspace": lambda _, facts: facts.secrets,
    "files that steer the agent or git": lambda _, facts: facts.steering,
    "the host's processes": lambda _, facts: facts.processes,
    "names of the host's files": lambda _, facts: facts.names,
    "memory is bounded": lambda _, facts: facts.memory,
    "processes are bounded": lambda _, facts: facts.count,
    "`multiprocessing`": lambda _, facts: facts.multiprocessing,
    "shared memory": lambda _, facts: facts.shared_memory,
    "needs": lambda _, facts: facts.needs,
}


def rows() -> list[Row]:
    """Every claim for every level that is built in."""
    providers = {name: provider_named(name) for name in LEVELS}
    return [
        Row(what=what, holds={name: says(provider, _FACTS[name]) for name, provider in providers.items()})
        for what, says in _CLAIMS.items()
    ]


def lacks(name: str) -> list[tuple[str, str]]:
    """What a weaker level has otherwise than the strongest, and how; nothing for one that is no level."""
    return [
        (row.what, row.holds[name]) for row in rows() if name in row.holds and row.holds[name] != row.holds[LEVELS[0]]
    ]


def table() -> str:
    """The rows as Markdown."""
    lines = [["", *(f"`{name}`" for name in LEVELS)], ["---"] * (len(LEVELS) + 1)]
    lines += [[row.what, *row.holds.values()] for row in rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
