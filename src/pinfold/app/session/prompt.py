"""What every model is told first. Short, and the same from turn to turn, so that providers can cache it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pinfold.app.trust.instructions import ALL_BYTES, SMALL_BYTES, Instruction, format_instructions
from pinfold.model import Profile
from pinfold.sandbox import Mount

_PROMPT = """\
You are Pinfold and work by writing Python. Variables, imports and files stay. You see only what code prints, its \
last expression and errors: print what you need and no more.
The workspace, and current folder, is {workspace}.
{mounts}\
When done, answer in words, or sooner: code that knows the result ends with `answer(f"...")`.
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
    *,
    form: str = "",
    instructions: tuple[Instruction, ...] = (),
) -> str:
    """`data`: the paths by which the session reads it. `catalogue`: a line on tools that are not told in full.

    `form`: what the final answer must be, if not any words will do.
    """
    lines = [f"Read-only data: {path}\n" for path in data]
    lines += [f"{'Also writable' if mount.writable else 'Also read-only'}: {mount.path}\n" for mount in mounts]
    if catalogue and profile != "small":
        lines.append(f"{catalogue}\n")
    template = _SMALL if profile == "small" else _PROMPT
    wanted = format_instructions(instructions, SMALL_BYTES if profile == "small" else ALL_BYTES)
    return template.format(workspace=workspace, mounts="".join(lines)) + wanted + form
