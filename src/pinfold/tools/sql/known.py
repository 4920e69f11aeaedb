"""Functions and settings by what they could do, as `known.toml` lists them. What is not known is asked of the server, or refused."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from pinfold.tools.sql.sources import Kind

_LISTS: dict[str, dict[str, str]] = tomllib.loads(
    (files("pinfold.tools.sql") / "known.toml").read_text(encoding="utf-8")
)


def _names(kind: Kind, key: str) -> frozenset[str]:
    return frozenset(_LISTS[kind].get(key, "").split())


HARMLESS = _names("postgresql", "harmless")
SQLITE_REFUSED = _names("sqlite", "refused")
SQLITE_PRAGMAS = _names("sqlite", "pragmas")
SQLITE_PRAGMAS_OF = _names("sqlite", "pragmas_of")
DUCKDB_PRAGMAS = _names("duckdb", "pragmas")


def is_refused(kind: Kind, name: str) -> bool:
    """Whether a call of it is refused whatever the server thinks of it."""
    return (
        name in _names(kind, "refused")
        or name.startswith(tuple(_names(kind, "refused_families")))
        or name.endswith(tuple(_names(kind, "refused_endings")))
    )
