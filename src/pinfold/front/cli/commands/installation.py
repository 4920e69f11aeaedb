"""`pinfold model`, `env` and `extras`: local models, the packages of cells, and those of Pinfold itself."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Self

import anyio
import click

from pinfold.app import (
    Environment,
    EnvironmentStatus,
    build_environment,
    current_folder,
    environment_status,
    load_config,
    models,
)
from pinfold.app.config import SandboxConfig
from pinfold.app.session import BUILDING, build_for_session
from pinfold.events import Json, plain_json
from pinfold.front.cli.terminal import show, show_rows
from pinfold.front.pages import SERVER_KINDS
from pinfold.front.progress import ProgressDisplay, make_reporter, say
from pinfold.text import without_known


class _Work:
    """Shows the progress of a download or a build, and how long it took."""

    def __init__(self, step: float) -> None:
        self.shown = ProgressDisplay(step)
        self.report = make_reporter(self.shown.show)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shown.end()

    def say_ready(self, what: str = "") -> None:
        say(f"ready in {time.monotonic() - self._began:.0f} s{what and ': '}{what}")


@click.group("model")
def model_command() -> None:
    """List, download and serve local models."""


@model_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_models(as_json: bool) -> None:
    """List available models: Pinfold's own, those of local servers, and providers whose key is set.

    Prints each model's name for --model, its context in tokens, and how it calls tools.
    """
    reachable = anyio.run(models.reachable_models)
    if as_json:
        click.echo(without_known(plain_json(_model_fields(reachable))))
        return
    for line in _models_page(reachable):
        show(line)


def _model_fields(reachable: models.Reachable) -> dict[str, Json]:
    inside = [
        {
            "name": one.weights.name,
            "title": one.weights.title,
            "pulled": one.path is not None,
            "path": str(one.path) if one.path else None,
            "size": one.weights.size,
            "memory": one.weights.memory,
            "context": one.weights.context,
            "tools": "text",
        }
        for one in reachable.inside
    ]
    keys = [{"provider": key.provider, "variable": key.variable} for key in reachable.keys]
    return {"builtin": inside, "servers": list(map(_server_fields, reachable.servers)), "keys": keys}


def _server_fields(server: models.FoundServer) -> dict[str, Json]:
    return {
        "kind": server.kind,
        "url": server.base_url,
        "needs_key": server.needs_key,
        "models": [
            {"name": server.name_of(model), "id": model.id, "context": model.context, "tools": model.tools}
            for model in server.models
        ],
    }


def _models_page(reachable: models.Reachable) -> Iterator[str]:
    yield "built in"
    for inside in reachable.inside:
        weights = inside.weights
        here = "downloaded" if inside.path else f"download with `pinfold model pull {weights.name}`"
        yield f"  {weights.name:<14} {weights.title}, {weights.megabytes}: {here}"
        yield f"  {'':<14} {_abilities(weights.context, 'text')}, {weights.memory / 1e9:.1f} GB of memory"
    yield "on this machine"
    for server in reachable.servers:
        key = ", needs a key" if server.needs_key else ""
        yield f"  {SERVER_KINDS[server.kind]}, {server.base_url}{key}"
        for model in server.models:
            yield f"    {server.name_of(model)}: {_abilities(model.context, model.tools)}"
    if not reachable.servers:
        yield "  no server answers (looked for Ollama, LM Studio, llama.cpp and vLLM)"
    yield "cloud providers"
    for key in reachable.keys:
        yield f"  {key.provider:<14} {key.variable} is set"
    if not reachable.keys:
        yield "  no provider key is set"


def _abilities(context: int | None, tools: str) -> str:
    return f"context {f'{context:,} tokens' if context else 'unknown'}, tools {tools}"


@model_command.command("pull")
@click.argument("name", metavar="builtin|builtin-small|smollm2|ollama:NAME")
def pull(name: str) -> None:
    """Download a model: weights for Pinfold's own use, or a model for Ollama.

    Does nothing if it is here already. An interrupted download continues where it stopped.
    """
    fetch(name)


@model_command.command("serve")
@click.argument("what", metavar="PATH|NAME")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="Port; 0 for any free one.")
@click.option("--host", default="127.0.0.1", help="Address to listen on; beyond this machine it needs --key.")
@click.option("--key", metavar="KEY", help="Require this key from clients.")
@click.option("--context", type=click.IntRange(min=256), help="Tokens of context, for a GGUF file.")
def serve(what: str, port: int, host: str, key: str | None, context: int | None) -> None:
    """Serve a model with OpenAI's API: chat completions, streamed or not, and embeddings.

    PATH is a GGUF file or a Transformers folder, NAME a model of `pinfold model list`. Tool calls that the model
    writes as text reach the client as tool calls. The address goes to stdout once the server is ready.
    """

    def announce(url: str, name: str) -> None:
        click.echo(url)
        say(f"serving {name} at {url}; Ctrl-C ends it")

    options = models.ServeOptions(what=what, host=host, port=port, key=key, context=context)
    anyio.run(models.serve_model, options, say, announce)


def fetch(name: str) -> None:
    """Download a model with progress; silent if it is here already. Raises PinfoldError."""
    work = _Work(step=0.1)

    def leave(*_: object) -> None:
        """Exit at once: cancelling would wait for name resolution. The partial file can be resumed."""
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        os.write(2, f"{clear}pinfold: stopped; the next pull continues from here\n".encode())
        os._exit(130)

    before = signal.signal(signal.SIGINT, leave)
    try:
        with work:
            path = anyio.run(models.pull_model, name, work.report)
    finally:
        signal.signal(signal.SIGINT, before)
    if work.shown.began:
        work.say_ready(f"{models.find_weights(name)[0].title}, {path}" if path else name)


@click.group("env")
def env_command() -> None:
    """Build and show the Python environment that cells run in."""


@env_command.command("build")
@click.option("--package", "packages", multiple=True, metavar="NAME", help="Add this package; may be repeated.")
@click.option("--rebuild", is_flag=True, help="Build it even if it exists.")
def build(packages: tuple[str, ...], rebuild: bool) -> None:
    """Build the environment: the usual packages, those in the configuration, and those given here.

    Does nothing if it exists. Needs the network once.
    """
    sandbox = _load_sandbox_config()
    with _Work(step=0.25) as work:
        environment = build_environment((*sandbox.packages, *packages), work.report, rebuild=rebuild)
    if work.shown.began:
        work.say_ready(f"{len(environment.packages)} packages, {_megabytes(environment)}, {environment.folder}")
        if sandbox.python:
            say(f"cells still run in {sandbox.python}, because sandbox.python is set")


def build_with_progress(packages: tuple[str, ...]) -> None:
    """Build the environment for a session; without a network the session starts without it."""
    say(BUILDING)
    with _Work(step=0.25) as work:
        problem = build_for_session(packages, work.report)
    if problem:
        say(problem)
    else:
        work.say_ready()


@env_command.command("show")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_environment(as_json: bool) -> None:
    """Print the environment's packages, its folder, and whether cells use it."""
    sandbox = _load_sandbox_config()
    status = environment_status(sandbox.packages, sandbox.python)
    if as_json:
        click.echo(plain_json(_environment_fields(status)))
        return
    environment = status.environment
    if environment is None:
        show(f"not built: `pinfold env build` makes it in {status.folder}")
        show(f"cells run in {status.used}")
        return
    used = "yes" if status.used == environment.python else f"no, cells run in {status.used}"
    rows = {
        "key": environment.key,
        "path": environment.folder,
        "python": f"{environment.version}, {environment.python}",
        "built": f"{environment.built_at:%Y-%m-%d %H:%M}",
        "size": _megabytes(environment),
        "used": used,
        "added": ", ".join(environment.asked) or "nothing",
    }
    for name, value in rows.items():
        show(f"{name:<9} {value}")
    show("packages")
    for name, version in environment.packages.items():
        show(f"  {name} {version}")


def _load_sandbox_config() -> SandboxConfig:
    loaded = load_config(current_folder())
    if loaded.notice:
        say(loaded.notice)
    return loaded.config.sandbox


def _environment_fields(status: EnvironmentStatus) -> dict[str, Json]:
    environment = status.environment
    fields: dict[str, Json] = {
        "built": environment is not None,
        "key": status.key,
        "path": str(status.folder),
        "cells_run_in": str(status.used),
    }
    if environment is None:
        return fields
    return {
        **fields,
        "used": status.used == environment.python,
        "python": str(environment.python),
        "python_version": environment.version,
        "added": list(environment.asked),
        "packages": dict(environment.packages),
        "size": environment.size,
        "built_at": environment.built_at.isoformat(),
    }


def _megabytes(environment: Environment) -> str:
    return f"{environment.size / 1e6:,.0f} MB"


@click.group("extras")
def extras_command() -> None:
    """List and install optional parts of Pinfold: providers, databases, serving."""


@extras_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per extra.")
def list_(as_json: bool) -> None:
    """List the extras, what they are for, and which are installed."""
    rows: list[tuple[Json, str]] = []
    for name, extra in models.EXTRAS.items():
        is_here = not models.missing_modules(name)
        fields = {"name": name, "installed": is_here, "for": extra.words, "packages": models.requirements(name)}
        rows.append((fields, f"{name:<14}{'installed' if is_here else 'available':<11}{extra.words}"))
    show_rows(rows, as_json=as_json)


@extras_command.command("add")
@click.argument("names", nargs=-1, required=True, type=click.Choice(list(models.EXTRAS)), metavar="NAME...")
def add(names: tuple[str, ...]) -> None:
    """Install extras into Pinfold's own environment: with the lock file in a checkout, else with uv or pipx.

    They stay when Pinfold is upgraded.
    """
    wanted = [name for name in dict.fromkeys(names) if models.missing_modules(name)]
    if not wanted:
        say(f"{' and '.join(names)}: installed already")
        return
    here = models.installation()
    packages = ", ".join(package for name in wanted for package in models.requirements(name))
    say(f"adding {' and '.join(wanted)} ({packages}) to the {here.kind} {here.folder}")
    with _Work(step=0.25) as work:
        models.add_extras(wanted, work.report)
    work.say_ready(f"{' and '.join(wanted)} installed")
