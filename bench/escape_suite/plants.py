"""Programs that plant what the user's own tools obey later, and ordinary work that looks like it and must stay.

Each is run in a session, the session ends, and then the user's tool is run. Where that tool is not on this machine, what
is still in the file decides.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping

from bench.escape_suite import git_plants as git
from bench.escape_suite import tool_plants as tools
from bench.escape_suite.program import Benign, Planting, Row, Special


def planting(
    category: str, programs: Mapping[str, Row], *, tool: str = "git", told_is_enough: bool = False
) -> Iterable[Planting]:
    for name, row in programs.items():
        source, user, plants = row[:3]
        special = row[3] if len(row) == 4 else Special()
        is_here = bool(user) and shutil.which(special.get("tool", tool), path="/usr/bin:/bin") is not None
        yield Planting(
            name=f"planting: {name}",
            category=f"planting {category}",
            source=source,
            without=tuple(special.get("without", "keeper").split()),
            shows="ran" if is_here else "left",
            user=user if is_here else "",
            plants=tuple(plants.split("|")),
            told_is_enough=special.get("told_is_enough", told_is_enough),
            then=special.get("then", ""),
            ground=special.get("ground", "repository"),
            before=special.get("before", ""),
            by=special.get("by", "cell"),
            host=special.get("host", ()),
            idle_s=special.get("idle_s", 0.0),
            timeout_s=special.get("timeout_s", 15.0),
            levels=special.get("levels", ("namespaces", "landlock")),
        )


PROGRAMS = [
    *planting("gitlinks", git.GITLINKS),
    *planting("git folders", git.SHAPES),
    *planting("git settings", git.IN_A_NEW_REPOSITORY),
    *planting("the user's repository", git.AT_THE_TOP),
    *planting("processes left running", git.LEFT_RUNNING),
    *planting("by the back", git.BY_THE_BACK),
    *planting("environments", tools.ENVIRONMENTS, tool="sh"),
    *planting("files", tools.BY_FILE | tools.BY_A_LINK | tools.EVERY_ROW),
    *planting("start files", tools.STARTS, tool="sh", told_is_enough=True),
]
BENIGN = [
    Benign(
        name=f"project: {name}",
        source=f"{source}\nprint('fine')",
        after=after,
        tells=tells,
        ground=ground,
        programs=("git",),
    )
    for name, (source, after, tells, ground) in tools.WORK.items()
]
