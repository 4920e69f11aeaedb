"""Extras, the optional parts of Pinfold: which there are, and how to add one to the running installation.

The tool that installed Pinfold also adds the extra, so that it remains after an upgrade or a new setup.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import parse_qs

from msgspec import Struct

from pinfold.app.models.session_models import CallOptions
from pinfold.events import Json, PinfoldError
from pinfold.model import NotInstalled
from pinfold.sandbox.environment import EnvironmentFailed, OnProgress, Progress, running_python
from pinfold.sandbox.environment.uv import explain_failure, find_uv, progress_of_uv, run, uv_variables
from pinfold.text import first_line

_ROOT = Path(__file__).parents[4]
_IMPORT_S = 300.0
Kind: TypeAlias = Literal["checkout", "uv tool", "pipx environment", "environment"]


class ExtraFailed(PinfoldError):
    """An extra could not be added. Says why and what helps."""


class Extra(Struct, frozen=True):
    words: str
    """What the extra is for."""
    modules: tuple[str, ...]
    """Modules that can be imported once it is installed."""


EXTRAS: Mapping[str, Extra] = {
    "providers": Extra(
        "models of Anthropic, Google and Amazon Bedrock", ("pydantic_ai", "anthropic", "google.genai", "boto3")
    ),
    "cohere": Extra("models of Cohere", ("pydantic_ai", "cohere")),
    "sql": Extra("databases: PostgreSQL, SQLite, DuckDB", ("adbc_driver_postgresql", "duckdb", "pyarrow", "sqlglot")),
    "transformers": Extra("pinfold model serve with a Transformers folder", ("torch", "transformers")),
    "local": Extra("the runtime of the model `builtin`, instead of downloading it later", ("xllamacpp",)),
    "embeddings": Extra("search notes by meaning, offline", ("numpy", "onnxruntime", "tokenizers")),
    "keyring": Extra("keep secrets in the system's keyring", ("keyring",)),
}


class Installation(Struct, frozen=True):
    kind: Kind
    folder: Path


def installation() -> Installation:
    """Return the running installation."""
    prefix = Path(sys.prefix)
    if (_ROOT / "scripts" / "bootstrap.sh").exists() and prefix.resolve() == (_ROOT / ".venv").resolve():
        return Installation("checkout", _ROOT)
    if (prefix / "uv-receipt.toml").exists():
        return Installation("uv tool", prefix)
    if (prefix / "pipx_metadata.json").exists():
        return Installation("pipx environment", prefix)
    return Installation("environment", prefix)


def missing_modules(name: str) -> list[str]:
    return [module for module in EXTRAS[name].modules if not _is_there(module)]


def requirements(*names: str) -> list[str]:
    """Return the requirements of these extras, as this version of Pinfold declares them."""
    try:
        declared = requires("pinfold") or []
    except PackageNotFoundError:
        declared = []
    marked = re.compile(rf"""(.+?)\s*;.*\bextra\s*==\s*["'](?:{"|".join(names)})["']""")
    return [found[1] for line in declared if (found := marked.fullmatch(line.strip()))]


def extra_for(model: str, calling: CallOptions) -> str | None:
    """Return the extra that this model needs and that is not installed; None if it needs none."""
    from pinfold.model.chain import check_installed

    try:
        check_installed(model, calling.access())
    except NotInstalled as missing:
        return missing.extra
    return None


def add_extras(names: Sequence[str], on_progress: OnProgress) -> None:
    """Install extras next to Pinfold, and check that they can be imported. Blocks. Raises ExtraFailed."""
    here = installation()
    folder = here.folder / ".venv" if here.kind == "checkout" else here.folder
    if not os.access(folder, os.W_OK):
        raise ExtraFailed(
            f"{folder} cannot be written to; add it as the user who owns it, or install Pinfold for yourself"
        )
    on_progress(Progress(phase="resolve"))
    try:
        _WAYS[here.kind](names, here, progress_of_uv(on_progress))
    except EnvironmentFailed as failure:
        raise ExtraFailed(f"{' and '.join(names)} could not be added: {failure}") from failure
    importlib.invalidate_caches()
    for name in names:
        _check_imports(name)


def _check_imports(name: str) -> None:
    """Import in a new process without the user's folders on its path: this one may have loaded other versions."""
    program = f"import {', '.join(EXTRAS[name].modules)}"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_IMPORT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExtraFailed(f"{name} was installed, but could not be tried: {error}") from error
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ExtraFailed(
            f"{name} was installed, but does not work: {first_line(why, 300)}; pinfold doctor checks this machine"
        )


OnLine: TypeAlias = Callable[[str], None]


def _into_checkout(names: Sequence[str], here: Installation, on_line: OnLine) -> None:
    """Add with the script that sets up the checkout: it keeps to uv.lock, and adds them again at each new setup."""
    script = here.folder / "scripts" / "bootstrap.sh"
    _run(["bash", "-c", 'source "$0" && add_extras "$@"', script, *names], {}, on_line)


def _into_uv_tool(names: Sequence[str], here: Installation, on_line: OnLine) -> None:
    """Reinstall with everything it was installed with, so that `uv tool upgrade` knows of both."""
    receipt = tomllib.loads((here.folder / "uv-receipt.toml").read_text(encoding="utf-8"))["tool"]
    command = [find_uv(), "tool", "install"]
    for entry in receipt["requirements"]:
        is_ours = entry["name"] == "pinfold"
        extras = [*entry.get("extras", ()), *names] if is_ours else entry.get("extras", ())
        option = ("--editable",) if is_ours else ("--with-editable",)
        if "editable" in entry:
            command += [*option, f"{entry['editable']}[{','.join(extras)}]" if extras else entry["editable"]]
        else:
            command += [*(() if is_ours else ("--with",)), _requirement(entry, extras)]
    if python := receipt.get("python"):
        command += ["--python", python]
    places = {"UV_TOOL_DIR": str(here.folder.parent)}
    for entry in receipt.get("entrypoints", ())[:1]:
        places["UV_TOOL_BIN_DIR"] = str(Path(entry["install-path"]).parent)
    _run(command, places, on_line)


def _requirement(entry: Mapping[str, Json], extras: Iterable[str]) -> str:
    """Format an entry of uv's receipt as a requirement."""
    named = entry["name"] + (f"[{','.join(dict.fromkeys(extras))}]" if extras else "")
    if place := entry.get("path") or entry.get("directory"):
        return f"{named} @ {Path(place).as_uri()}"
    if place := entry.get("git"):
        address, _, more = place.partition("?")
        revision = [value for key, values in parse_qs(more).items() if key != "subdirectory" for value in values]
        return f"{named} @ git+{address}{''.join(f'@{one}' for one in revision[:1])}"
    if place := entry.get("url"):
        return f"{named} @ {place}"
    return f"{named}{entry.get('specifier', '')}"


def _into_pipx(names: Sequence[str], here: Installation, on_line: OnLine) -> None:
    wanted = requirements(*names)
    pipx = shutil.which("pipx")
    if pipx is None:
        raise ExtraFailed(
            f"pipx installed Pinfold and is not on the PATH; fix: pipx inject {here.folder.name} {' '.join(wanted)}"
        )
    _run([pipx, "inject", here.folder.name, *wanted], {"PIPX_HOME": str(here.folder.parents[1])}, on_line)


def _into_environment(names: Sequence[str], _here: Installation, on_line: OnLine) -> None:
    try:
        command = [find_uv(), "pip", "install", "--python", sys.executable]
    except EnvironmentFailed:
        if not _is_there("pip"):
            raise
        command = [sys.executable, "-I", "-m", "pip", "install", "--disable-pip-version-check"]
    _run([*command, *requirements(*names)], {}, on_line)


_WAYS: Mapping[Kind, Callable[[Sequence[str], Installation, OnLine], None]] = {
    "checkout": _into_checkout,
    "uv tool": _into_uv_tool,
    "pipx environment": _into_pipx,
    "environment": _into_environment,
}


def _run(command: Sequence[str | Path], variables: Mapping[str, str], on_line: OnLine) -> None:
    root = Path("/")  # no project's settings apply there

    def explain(said: str) -> str:
        """Return uv's reason; if there is none, the last line, which is the script's own."""
        if re.search(r"^\s*(?:error:|\u00d7)", said, re.MULTILINE):
            return explain_failure(said, running_python(), Path(sys.prefix))
        return first_line((said.strip().splitlines() or ["it gave no reason"])[-1].removeprefix("pinfold: "), 300)

    run(command, environment={**uv_variables(), **variables}, folder=root, keep=None, on_line=on_line, explain=explain)


def _is_there(module: str) -> bool:
    with suppress(ModuleNotFoundError):  # raised if its parent package is missing
        return find_spec(module) is not None
    return False
