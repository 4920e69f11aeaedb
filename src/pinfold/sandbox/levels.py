"""What each level of isolation can and cannot do, as rows: for the documentation and for `doctor`. Starts nothing."""

from __future__ import annotations

from collections.abc import Callable

from pinfold.sandbox import provider_named
from pinfold.sandbox.contract import DATASETS, SERVERS, Capabilities

LEVELS: tuple[str, ...] = ("namespaces", "landlock", "unsafe-local")
"""From the strongest down."""


_FACTS: dict[str, tuple[str, str, str]] = {
    "whose rights code has": (
        "never as root",
        "as the workspace's owner; where that is root, as root without its powers",
        "as you",
    ),
    "secrets in the workspace": (
        "read as empty",
        "the workspace is refused, or they can be read (`--allow-unmasked`)",
        "can be read",
    ),
    "files that steer the agent or git": (
        "read-only; what a cell makes anew is removed after it",
        "put back after each cell, with a notice; a folder with Pinfold's own installation is refused",
        "can be written to",
    ),
    "the host's processes": (
        "its own only",
        "no signal, no look inside; that they exist can be found out",
        "all of yours",
    ),
    "names of the host's files": (
        "unseen",
        "a path that is guessed can be checked for existence, size and times",
        "all of yours",
    ),
    "memory is bounded": ("of the session as a whole", "of the session as a whole", "not bounded"),
    "processes are bounded": (
        "of the session",
        "of the user as a whole; root's are counted four times a second",
        "not bounded",
    ),
    "`multiprocessing`": ("yes", "processes and pipes; no locks, queues or pools", "yes"),
    "shared memory": ("its own", "none", "the machine's"),
    "needs": (
        "user namespaces",
        "Landlock (Linux 5.13); before 6.12 the session's init is asked about every signal",
        "nothing",
    ),
}
"""What the capabilities do not say, in the order of LEVELS."""


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _data(has: Capabilities) -> str:
    if has.mounts:
        return f"at {DATASETS}/NAME"
    return "read-only, at its own path" if has.isolated else "no"


_CLAIMS: dict[str, Callable[[Capabilities], str]] = {
    "files and processes outside are closed": lambda has: _yes(has.isolated),
    "no network outside": lambda has: _yes(has.isolated),
    "sockets of its own (a local web server)": lambda has: _yes(has.sockets),
    "data given with `--data`": _data,
    "tools as files to read": lambda has: f"in {SERVERS}" if has.mounts else "no",
    "paths given with `--mount`": lambda has: "at their own path" if has.isolated and not has.remote else "no",
    "packages installed for one session": lambda has: _yes(has.site),
    "mode `read-only`": lambda has: _yes(has.isolated),
    "branches of live data, undo in milliseconds": lambda has: _yes(has.fork),
    "variables after a restart": lambda has: _yes(has.durable),
    "a branch's own view of the files": lambda has: _yes(has.files_view),
}


def rows() -> dict[str, dict[str, str]]:
    """What a user may count on, and for each level that is built in whether it holds: `yes`, `no`, or words."""
    has = {name: provider_named(name).capabilities for name in LEVELS}
    claims = {what: {name: says(can) for name, can in has.items()} for what, says in _CLAIMS.items()}
    return claims | {what: dict(zip(has, words, strict=True)) for what, words in _FACTS.items()}


def lacks(name: str) -> list[tuple[str, str]]:
    """What a weaker level has otherwise than the strongest, and how; nothing for one that is no level."""
    if name not in LEVELS:
        return []
    return [(what, holds[name]) for what, holds in rows().items() if holds[name] != holds[LEVELS[0]]]


def table() -> str:
    """The rows as Markdown."""
    lines = [["", *(f"`{name}`" for name in LEVELS)], ["---"] * (len(LEVELS) + 1)]
    lines += [[what, *holds.values()] for what, holds in rows().items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
