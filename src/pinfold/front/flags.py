"""The flags of a turn, for every command that has one. Loads click and nothing else of weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


class _MoreThanZero(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic in stubs only
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not (math.isfinite(number) and number > 0):
            self.fail(f"{value!r} must be more than 0 and finite", param, ctx)
        return number


MORE_THAN_0 = _MoreThanZero()
sandbox_option = click.option("--sandbox", help="Sandbox: auto, namespaces, landlock or unsafe-local.")
workspace_option = click.option(
    "--workspace", type=click.Path(path_type=Path), help="The folder to work in; this one unless given."
)
data_option = click.option(
    "--data",
    multiple=True,
    metavar="[NAME=]PATH",
    help="Mount read-only at /mnt/datasets/NAME; FOLDER/ alone at /mnt/datasets.",
)
mount_option = click.option(
    "--mount", multiple=True, metavar="PATH[:rw]", help="Show this path inside, read-only unless :rw."
)
unmasked_option = click.option(
    "--allow-unmasked", is_flag=True, help="Let code read the folder's secrets where the sandbox cannot hide them."
)
mode_option = click.option(
    "--mode", type=click.Choice(["read-only", "ask", "auto", "full"]), help="What the agent may do without asking you."
)


_SESSION = (
    click.option(
        "--model", help="Which model: PROVIDER:NAME, http://HOST:PORT/v1#NAME, builtin, scripted:FILE, an alias."
    ),
    click.option("--temperature", type=float, help="How freely the model words things; 0 for the likeliest."),
    click.option("--top-p", type=float, help="Only the likeliest words that make up this share."),
    click.option("--seed", type=int, help="For replies that can be had again, where the model allows it."),
    click.option("--no-cache", is_flag=True, help="Don't reuse cached answers."),
    mode_option,
    sandbox_option,
    workspace_option,
    data_option,
    mount_option,
    unmasked_option,
    click.option("--tools", metavar="A,B", help="Nothing but these tools, by name or pattern."),
    click.option("--no-shell", is_flag=True, help="Without the shell tool."),
    click.option("--allow-host", multiple=True, metavar="HOST", help="Let code connect to HOST without asking."),
    click.option(
        "--allow-tool", multiple=True, metavar="SERVER.TOOL", help="Let the agent call this tool without asking."
    ),
    click.option("--guards", type=click.Choice(["off", "strict"]), help="Guard rails for code."),
    click.option("--imports", metavar="A,B", help="Let code import nothing but these modules."),
    click.option("--timeout", type=MORE_THAN_0, metavar="SECONDS", help="Limit for one cell."),
    click.option("--max-steps", type=click.IntRange(min=1), help="Limit of model replies in the turn."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Limit of tokens in the turn."),
    click.option("--max-cost", type=MORE_THAN_0, metavar="DOLLARS", help="Limit of cost in the turn."),
    click.option("--max-seconds", type=MORE_THAN_0, help="Limit of time for the turn."),
)
_SHOWN = (
    click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON."),
    click.option("-q", "--quiet", is_flag=True, help="Print the answer only."),
)


def session_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How the session is opened."""
    for option in reversed(_SESSION):
        command = option(command)
    return command


def turn_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """That, and how a turn is shown in a pipe."""
    for option in reversed(_SHOWN):
        command = option(command)
    return session_options(command)


def from_options(command: Callable[..., Any]) -> Callable[..., Any]:
    brings = click.option(
        "--from",
        "notebook",
        type=click.Path(path_type=Path),
        metavar="NB.ipynb",
        help="Bring a notebook in: its cells are run first, and its variables are there.",
    )
    tells = click.option(
        "--no-run", is_flag=True, help="With --from: show the notebook to the model without running it."
    )
    return brings(tells(command))


def mount_settings(given: dict[str, Any]) -> dict[str, Any]:
    """What of the host's a session may see, checked, as options of it; None leaves it as it was."""
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
    "sandbox.provider": "sandbox",
    "sandbox.cell_s": "timeout",
}


def flags_of(given: dict[str, Any]) -> dict[str, Any]:
    """Command-line flags by the configuration key they set."""
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
