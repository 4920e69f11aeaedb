"""The user's side: what is configured, whether it is right, and whether this folder is obeyed."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from pinfold.app.config.layers import NAMED, Config, Loaded, load_config
from pinfold.app.config.settings import all_keys, config_file
from pinfold.app.diagnostics.findings import CheckContext, Finding
from pinfold.app.errors import ConfigError
from pinfold.app.trust.instructions import instructions
from pinfold.app.trust.project_files import read_project_files
from pinfold.app.trust.workspace_trust import trust_status
from pinfold.text import join_names

_OTHERS = ("PINFOLD_DEBUG", "PINFOLD_TEST_DATA_PYTHON", "PINFOLD_SITE")
"""Variables that stand for no key."""


def configuration(workspace: Path) -> tuple[Loaded, list[Finding]]:
    """As far as it loads."""
    try:
        loaded = load_config(workspace)
    except ConfigError as error:
        cause, _, fix = str(error).rpartition("; ")
        if "config.toml" in str(error):
            cause, fix = str(error).removesuffix("; mend it: pinfold config edit"), "pinfold config edit"
        fault = Finding(section="configuration", what="settings", standing="fault", cause=cause, fix=fix)
        return Loaded(config=Config(), origins={}), [fault]
    path = config_file()
    words = f"{path}" if path.exists() else f"the defaults; {path} would change them"
    return loaded, [Finding(section="configuration", what="settings", words=words), *_variables(loaded)]


def _variables(loaded: Loaded) -> Iterator[Finding]:
    """Those that look like a setting and are none: nobody would notice."""
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
        yield Finding(
            section="configuration",
            what=name,
            standing="note",
            cause="this variable sets nothing",
            fix=f"did you mean {near[0]}?" if near else f"unset {name}",
        )


def folder(around: CheckContext) -> Iterator[Finding]:
    """Whether what this one holds is obeyed."""
    found = read_project_files(around.workspace)
    section, what = "configuration", "this folder"
    names = [*(file.name for file in found.files), *found.odd]
    if not names:
        yield Finding(section=section, what=what, words="No project instructions found")
    elif trust_status(found).trusted:
        yield Finding(section=section, what=what, words=f"is trusted: {join_names(names, 4)}")
    else:
        odd = [f"{name}: {why}" for name, why in found.odd.items()]
        yield Finding(
            section=section,
            what=what,
            standing="note",
            cause=join_names(odd, 2) if odd else around.loaded.notice.partition("; see")[0] or "it is not trusted",
            fix="change it or take it away" if odd else f"look at it, and allow it: pinfold trust {found.workspace}",
        )
    _, notices = instructions(found.workspace, around.loaded.obeyed)
    for notice in notices:
        yield Finding(section=section, what="instructions", standing="note", cause=notice)
