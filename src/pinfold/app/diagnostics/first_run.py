"""Detect a setup for a user who has configured nothing: models, sandbox, what needs consent; draft an AGENTS.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread
import msgspec

from pinfold.app.config.layers import load_config
from pinfold.app.config.settings import set_value
from pinfold.app.errors import ConfigError
from pinfold.app.models.local_models import (
    SUGGESTED,
    FoundServer,
    Key,
    Reachable,
    choose_among,
    models_here,
    reachable_models,
)
from pinfold.app.models.session_models import CallOptions
from pinfold.app.session.environment import environment_status
from pinfold.app.storage.session_store import list_folder
from pinfold.app.trust.project_files import UnsafeFile, read_below
from pinfold.events import decode_json
from pinfold.model import BUILTIN, DIRECT, destination_of
from pinfold.sandbox.providers.doctor import Facts, gather_facts
from pinfold.text import cap_text, presentable_line

Isolation: TypeAlias = Literal["namespaces", "landlock", "none", "unknown"]
LIMIT_S = 0.45
"""Time limit for all concurrent checks together."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A model provider that can be used if the user agrees."""

    model: str
    variable: str
    """Environment variable that holds the key."""
    to: str
    """Where the conversation would go."""

    @property
    def question(self) -> str:
        return (
            f"{self.variable} is set. With {self.model} what you type and what code prints goes to {self.to}, "
            "and nothing else does. Use it"
        )


class DetectedSetup(msgspec.Struct, frozen=True, kw_only=True):
    servers: tuple[FoundServer, ...] = ()
    builtin: str = ""
    """Title of the built-in model."""
    builtin_size: str = ""
    builtin_here: bool = False
    keys: tuple[Key, ...] = ()
    sandbox: str = "auto"
    """The configured provider."""
    isolation: Isolation = "unknown"
    """What the kernel seems to allow; every session verifies it again."""
    data_environment: bool = False
    """True if the environment with pandas and the other data libraries is built."""
    model: str = ""
    """Model that will be used; empty if any would need the user's consent."""
    why: str = ""
    offer: Offer | None = None


async def detect_setup(limit_s: float = LIMIT_S) -> DetectedSetup:
    """Detect everything; servers and the kernel only if they answer in time. Asks no provider and starts nothing.

    Raises ConfigError for a broken file.
    """
    config = load_config().config
    there = models_here()
    facts: Facts | None = None

    async def look_at_kernel() -> None:
        nonlocal facts
        facts = await anyio.to_thread.run_sync(gather_facts, abandon_on_cancel=True)

    with anyio.move_on_after(limit_s):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look_at_kernel)
            there = await reachable_models()
    calling = CallOptions.of(config)
    model, why = (config.model.name, "as configured") if config.model.name else _pick_model(there, calling)
    builtin = there.inside[0]
    return DetectedSetup(
        servers=there.servers,
        builtin=builtin.weights.title,
        builtin_size=builtin.weights.megabytes,
        builtin_here=builtin.path is not None,
        keys=there.keys,
        sandbox=config.sandbox.provider,
        isolation=_isolation(facts),
        data_environment=environment_status(config.sandbox.packages, config.sandbox.python).environment is not None,
        model=model,
        why=why,
        offer=None if model else _offer(there.keys, calling),
    )


async def agree_on_model(found: DetectedSetup, agrees: Callable[[str], Awaitable[bool]]) -> str:
    """Return the model to use; empty if the user refused all. A model the user agreed to is saved to the configuration.

    The first question offers the provider. If it is refused, or there is none, the second offers `builtin`.
    """
    if found.model:
        return found.model
    fetch = f"The built-in model runs here, and nothing leaves this machine. Fetch it ({found.builtin_size}) and use it"
    if found.offer and await agrees(found.offer.question):
        name = found.offer.model
    elif found.builtin_size and await agrees(fetch):
        name = BUILTIN[0]
    else:
        return ""
    set_value("model.name", name)
    return name


def _pick_model(there: Reachable, calling: CallOptions) -> tuple[str, str]:
    try:
        chosen = choose_among(there)
    except ConfigError:
        return "", ""
    if to := destination_of(chosen.name, calling.access()):
        return chosen.name, f"it answers at {to}, where what you type and what code prints goes"
    where = "the built-in model" if chosen.name in BUILTIN else "a server of this machine"
    return chosen.name, f"{where}; nothing leaves this machine"


def _offer(keys: tuple[Key, ...], calling: CallOptions) -> Offer | None:
    set_ = {key.provider: key.variable for key in reversed(keys)}
    for provider, model in SUGGESTED.items():
        if provider in set_ and (provider not in DIRECT or find_spec("pydantic_ai")):
            to = destination_of(model, calling.access()) or "this machine"
            return Offer(model=model, variable=set_[provider], to=to)
    return None


def _isolation(facts: Facts | None) -> Isolation:
    if facts is None:
        return "unknown"
    if sys.platform != "linux":
        return "none"
    shown = facts.as_dict()
    if shown["user_namespaces"] and shown["mounts"]:
        return "namespaces"
    return "landlock" if shown["landlock_abi"] else "none"


NAME = "AGENTS.md"
_TABLES = 5
_HEADER = 200
_TARGET = re.compile(r"^([A-Za-z][\w-]{0,40}):", re.MULTILINE)
_SCRIPT = re.compile(r"[A-Za-z][\w:.-]{0,40}")
_KNOWN = {"Cargo.toml": "cargo test", "go.mod": "go test ./...", "pom.xml": "mvn test"}


class _Package(msgspec.Struct):
    """The part of a `package.json` that is read."""

    scripts: dict[str, object] = {}


def draft(workspace: Path) -> str:
    """Return a draft of AGENTS.md, safe to print, for the user to edit."""
    parts = [f"# {presentable_line(workspace.name) or 'This folder'}", "", "What is here:", ""]
    parts += [f"- `{line.strip()}`" for line in list_folder(workspace)]
    for title, lines in {"Commands:": _commands, "Tables, by their first line:": _tables}.items():
        if found := [*lines(workspace)]:
            parts += ["", title, "", *found]
    rules = ["", "Rules for the agent:", "", "- Keep changes small, and run the tests after them.", ""]
    return "\n".join([*parts, *rules])


def _commands(workspace: Path) -> Iterator[str]:
    there = {path.name for path in workspace.iterdir()}
    if "pytest" in _text(workspace, "pyproject.toml"):
        yield f"- test: `{'uv run ' if 'uv.lock' in there else ''}pytest`"
    try:
        scripts = decode_json(_text(workspace, "package.json") or "{}", _Package).scripts
    except (msgspec.MsgspecError, RecursionError):
        scripts = {}
    names = filter(_SCRIPT.fullmatch, scripts)
    yield from (f"- `npm run {name}`" for name in islice(names, 8))
    targets = dict.fromkeys(_TARGET.findall(_text(workspace, "Makefile")))
    yield from (f"- `make {target}`" for target in list(targets)[:8])
    yield from (f"- test: `{command}`" for file, command in _KNOWN.items() if file in there)


def _tables(workspace: Path) -> Iterator[str]:
    for path in sorted(workspace.glob("*.[ct]sv"))[:_TABLES]:
        if header := _text(workspace, path.name).partition("\n")[0].strip():
            yield f"- `{presentable_line(path.name)}`: `{cap_text(presentable_line(header), _HEADER)}`"


def _text(workspace: Path, name: str) -> str:
    """Read a workspace file; empty if it cannot be read."""
    try:
        return read_below(workspace, name).decode("utf-8", "replace")
    except (UnsafeFile, OSError):
        return ""
