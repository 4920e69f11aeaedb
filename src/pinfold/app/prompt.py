"""What every model is told first. Short, and the same from turn to turn, so that providers can cache it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pinfold.model import Profile
from pinfold.sandbox import Mount

_PROMPT = """\
You are Pinfold, an agent that works by writing Python. Your code runs in one persistent session: variables, \
imports and files stay from call to call. You see only what the code prints, the value of its last expression \
and errors, so print what you need and keep it short.
The workspace, and current folder, is {workspace}.
{mounts}\
When the task is done, answer in plain words without calling a tool.
"""


_SMALL = """\
You are Pinfold. You solve tasks with Python in the current folder; variables and files stay between runs.
{mounts}\
"""


def system_prompt(
    workspace: Path,
    data: Iterable[str] = (),
    mounts: Iterable[Mount] = (),
    profile: Profile = "full",
    catalogue: str = "",
) -> str:
    """`data`: the paths by which the session reads it. `catalogue`: a line on tools that are not told in full."""
    lines = [f"Read-only data: {path}\n" for path in data]
    lines += [
        f"{'Also writable' if mount.writable else 'Also read-only'}: {mount.path}\n" for mount in mounts
    ]
    if catalogue and profile != "small":
        lines.append(f"{catalogue}\n")
    template = _SMALL if profile == "small" else _PROMPT
    return template.format(workspace=workspace, mounts="".join(lines))
