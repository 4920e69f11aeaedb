"""Command-line flags that several commands share. Imports nothing heavy but click."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

_Command: TypeAlias = Callable[..., object]
Flags: TypeAlias = Mapping[str, Any]
"""Values from the command line, by parameter."""


class _MoreThanZero(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic in stubs only
    name = "number"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not (math.isfinite(number) and number > 0):
            self.fail(f"{value!r} must be more than 0 and finite", param, ctx)
        return number


MORE_THAN_0 = _MoreThanZero()
PATH = click.Path(path_type=Path)
sandbox_option = click.option("--sandbox", help="Sandbox: auto, namespaces, landlock or unsafe-local.")
_MODES = click.Choice(["read-only", "ask", "auto", "full"])
_WORKSPACE = click.option("--workspace", type=PATH, help="Folder to work in. Default: the current folder.")
_ACCESS = (
    click.option("--mode", type=_MODES, help="What the agent may do without asking you."),
    sandbox_option,
    _WORKSPACE,
    click.option("--data", multiple=True, metavar="[NAME=]PATH", help="Let code read PATH at /mnt/datasets/NAME."),
    click.option("--mount", multiple=True, metavar="PATH[:rw]", help="Let code read PATH; write with :rw."),
    click.option("--allow-unmasked", is_flag=True, help="Work even if the sandbox cannot hide secret files."),
)
_SESSION = (
    click.option("--model", help="PROVIDER:NAME, http://HOST:PORT/v1#NAME, builtin, scripted:FILE or an alias."),
    click.option("--temperature", type=float, help="Sampling temperature; 0 is the least random."),
    click.option("--top-p", type=float, help="Nucleus sampling: consider only tokens within this probability mass."),
    click.option("--seed", type=int, help="Random seed, where the model supports it."),
    click.option("--no-cache", is_flag=True, help="Don't reuse cached answers."),
    *_ACCESS,
    click.option("--tools", metavar="A,B", help="Offer only these tools, by name or pattern."),
    click.option("--no-shell", is_flag=True, help="Do not offer the shell tool."),
    click.option("--allow-host", multiple=True, metavar="HOST", help="Let code connect to HOST without asking."),
    click.option("--allow-tool", multiple=True, metavar="SERVER.TOOL", help="Let the agent call TOOL without asking."),
    click.option(
        "--guards",
        type=click.Choice(["off", "strict"]),
        help="strict: refuse code that imports uncommon modules or runs text it has decoded.",
    ),
    click.option(
        "--verify", metavar="CMD", help="Check each answer: `model`, or a command that exits with 0 if it is good."
    ),
    click.option("--imports", metavar="A,B", help="Let code import only these modules."),
    click.option("--timeout", type=MORE_THAN_0, metavar="SECONDS", help="Time limit for one cell."),
    click.option("--max-steps", type=click.IntRange(min=1), help="Limit on model replies per turn."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Limit on tokens per turn."),
    click.option("--max-cost", type=MORE_THAN_0, metavar="DOLLARS", help="Limit on the cost of one turn."),
    click.option("--max-seconds", type=MORE_THAN_0, help="Time limit for one turn."),
)
_SHOWN = (
    click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON."),
    click.option("-q", "--quiet", is_flag=True, help="Print the answer only."),
)


_FROM = (
    click.option(
        "--from", "notebook", type=PATH, metavar="NB.ipynb", help="Run this notebook first and keep its variables."
    ),
    click.option("--no-run", is_flag=True, help="With --from: show the notebook to the model, do not run it."),
)


def _decorator(options: Sequence[Callable[[_Command], _Command]]) -> Callable[[_Command], _Command]:
    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


access_options = _decorator(_ACCESS)
"""Options for what code may see and do."""
session_options = _decorator(_SESSION)
"""`access_options`, and options for the model, the tools and limits."""
editor_options = _decorator([one for one in _SESSION if one is not _WORKSPACE])
"""`session_options` without --workspace, because the editor names the folder."""
turn_options = _decorator((*_SESSION, *_SHOWN))
"""`session_options`, and options for how a turn is printed."""
from_options = _decorator(_FROM)


def mount_settings(given: Flags) -> dict[str, Any]:
    """Return the checked session options for --data, --mount and --allow-unmasked; None leaves them unchanged."""
    from pinfold.app import check_paths, mounts_of, parse_named_paths

    return {
        "data": check_paths(parse_named_paths(given["data"])) if given["data"] else None,
        "mounts": mounts_of(given["mount"]) if given["mount"] else None,
        "allow_unmasked": given["allow_unmasked"],
    }


_KEYS = {
    "model.name": "model",
    "model.temperature": "temperature",
    "model.top_p": "top_p",
    "model.seed": "seed",
    "run.mode": "mode",
    "run.max_steps": "max_steps",
    "run.max_tokens": "max_tokens",
    "run.max_cost": "max_cost",
    "run.max_seconds": "max_seconds",
    "run.guards": "guards",
    "run.verify": "verify",
    "sandbox.provider": "sandbox",
    "sandbox.cell_s": "timeout",
}


def flags_of(given: Flags) -> dict[str, Any]:
    """Return the command-line flags by the configuration key that they set."""
    return {key: given.get(name) for key, name in _KEYS.items()} | {
        "model.cache": False if given.get("no_cache") else None,
        "run.imports": _names(given.get("imports")),
        "tools.enable": _names(given.get("tools")),
        "tools.disable": ("shell",) if given.get("no_shell") else None,
        "network.allow": given.get("allow_host") or None,
        "flows.hosts": given.get("allow_host") or None,
        "flows.tools": given.get("allow_tool") or None,
    }


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(filter(None, (name.strip() for name in text.split(","))))
