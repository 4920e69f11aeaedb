"""What `pinfold doctor` says of one thing, and of the configuration and this folder."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from pinfold.app.config.layers import Loaded, load_config
from pinfold.app.config.schema import NAMED, Config
from pinfold.app.config.settings import all_keys, config_file
from pinfold.app.errors import ConfigError
from pinfold.app.trust.instructions import instructions
from pinfold.app.trust.project_files import read_project_files
from pinfold.app.trust.workspace_trust import trust_status
from pinfold.text import join_names

Section: TypeAlias = Literal[
    "versions", "configuration", "sandboxes", "models", "MCP servers", "databases", "folders", "leftovers"
]
Standing: TypeAlias = Literal["ok", "note", "fault"]
"""`note`: it could be better, or is merely absent. `fault`: something that is wanted does not work."""


class Finding(msgspec.Struct, frozen=True):
    what: str
    standing: Standing = "ok"
    words: str = ""
    """How it is, where it works."""
    cause: str = ""
    """Why it does not, or not quite."""
    fix: str = ""
    """What to type, or to do."""


def fault(what: str, cause: str, fix: str = "") -> Finding:
    return Finding(what, standing="fault", cause=cause, fix=fix)


def note(what: str, cause: str, fix: str = "") -> Finding:
    return Finding(what, standing="note", cause=cause, fix=fix)


def explained_fault(what: str, error: Exception, fix: str = "") -> Finding:
    """Our messages say what to do behind the last semicolon; `fix` is for one that does not."""
    cause, _, advice = str(error).rpartition("; ")
    return fault(what, cause or advice, advice if cause else fix)


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them are told."""

    workspace: Path
    loaded: Loaded
    """Nothing but defaults where the configuration does not load."""
    limit_s: float
    """For each thing that is started or asked."""

    @property
    def config(self) -> Config:
        return self.loaded.config


_OTHERS = ("PINFOLD_DEBUG", "PINFOLD_TEST_DATA_PYTHON", "PINFOLD_SITE")
"""Variables that stand for no key."""


def configuration(workspace: Path) -> tuple[Loaded, list[Finding]]:
    """As far as it loads."""
    try:
        loaded = load_config(workspace)
    except ConfigError as error:
        found = explained_fault("settings", error)
        if "config.toml" in str(error):
            cause = str(error).removesuffix("; mend it: pinfold config edit")
            found = fault("settings", cause, "pinfold config edit")
        return Loaded(config=Config(), origins={}), [found]
    path = config_file()
    words = f"{path}" if path.exists() else f"the defaults; {path} would change them"
    return loaded, [Finding("settings", words=words), *_variables(loaded)]


def _variables(loaded: Loaded) -> Iterator[Finding]:
    """Variables that look like a setting and are none."""
    known = {f"PINFOLD_{key.replace('.', '_')}".upper() for key in all_keys()}
    tables = tuple(
        f"PINFOLD_{section}_{name.replace('-', '_')}_".upper()
        for section in NAMED
        for name in getattr(loaded.config, section)
    )
    for name in sorted(os.environ):
        if not name.startswith("PINFOLD_") or name in known or name in _OTHERS or name.startswith(tables):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        yield note(name, "this variable sets nothing", f"did you mean {near[0]}?" if near else f"unset {name}")


def folder(around: CheckContext) -> Iterator[Finding]:
    """Whether what this one holds is obeyed."""
    found = read_project_files(around.workspace)
    what, names = "this folder", [*(file.name for file in found.files), *found.odd]
    if not names:
        yield Finding(what, words="No project instructions found")
    elif trust_status(found).trusted:
        yield Finding(what, words=f"is trusted: {join_names(names, 4)}")
    elif found.odd:
        odd = [f"{name}: {why}" for name, why in found.odd.items()]
        yield note(what, join_names(odd, 2), "change it or take it away")
    else:
        cause = around.loaded.notice.partition("; see")[0] or "it is not trusted"
        yield note(what, cause, f"look at it, and allow it: pinfold trust {found.workspace}")
    _, notices = instructions(found.workspace, around.loaded.obeyed)
    yield from (note("instructions", notice) for notice in notices)
