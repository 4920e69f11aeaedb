"""`pinfold model`: local models."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import anyio
import click

from pinfold.app.models import (
    BuiltinModel,
    FoundServer,
    Pulling,
    Reachable,
    ServeOptions,
    find_weights,
    pull_model,
    reachable_models,
    serve_model,
)
from pinfold.events import plain_json
from pinfold.front.progress import ProgressDisplay, say
from pinfold.text import presentable_line, without_known

_KINDS = {
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "openai": "a server with OpenAI's API",
}


@click.group("model")
def model_command() -> None:
    """List, download and serve local models."""


@model_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_models(as_json: bool) -> None:
    """List available models: Pinfold's own, those of local servers, and providers whose key is set.

    Each with its name for --model, its context in tokens, and how it calls tools.
    """
    reachable = anyio.run(reachable_models)
    if as_json:
        click.echo(without_known(plain_json(_fields(reachable))))
        return
    for line in _page(reachable):
        click.echo(presentable_line(line))


def _fields(reachable: Reachable) -> dict[str, Any]:
    return {
        "builtin": [_inside(inside) for inside in reachable.inside],
        "servers": [_server(server) for server in reachable.servers],
        "keys": [{"provider": key.provider, "variable": key.variable} for key in reachable.keys],
    }


def _inside(inside: BuiltinModel) -> dict[str, Any]:
    weights = inside.weights
    return {
        "name": weights.name,
        "title": weights.title,
        "pulled": inside.path is not None,
        "path": str(inside.path) if inside.path else None,
        "size": weights.size,
        "memory": weights.memory,
        "context": weights.context,
        "tools": "text",
    }


def _server(server: FoundServer) -> dict[str, Any]:
    return {
        "kind": server.kind,
        "url": server.base_url,
        "needs_key": server.needs_key,
        "models": [
            {"name": server.name_of(model), "id": model.id, "context": model.context, "tools": model.tools}
            for model in server.models
        ],
    }


def _page(reachable: Reachable) -> Iterator[str]:
    yield "inside"
    for inside in reachable.inside:
        weights = inside.weights
        here = "here" if inside.path else f"`pinfold model pull {weights.name}`"
        yield f"  {weights.name:<14} {weights.title}, {weights.megabytes}: {here}"
        yield f"  {'':<14} {_abilities(weights.context, 'text')}, {weights.memory / 1e9:.1f} GB of memory"
    yield "on this machine"
    for server in reachable.servers:
        key = ", needs a key" if server.needs_key else ""
        yield f"  {_KINDS[server.kind]}, {server.base_url}{key}"
        for model in server.models:
            yield f"    {server.name_of(model)}: {_abilities(model.context, model.tools)}"
    if not reachable.servers:
        yield "  no server answers (looked for Ollama, LM Studio, llama.cpp and vLLM)"
    yield "elsewhere"
    for key in reachable.keys:
        yield f"  {key.provider:<14} {key.variable} is set"
    if not reachable.keys:
        yield "  no provider's key is set"


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
@click.option("--host", default="127.0.0.1", help="Address; other than this machine it needs --key.")
@click.option("--key", metavar="KEY", help="Require this key from clients.")
@click.option("--context", type=click.IntRange(min=256), help="Tokens of context, for a GGUF file.")
def serve(what: str, port: int, host: str, key: str | None, context: int | None) -> None:
    """Serve a model with OpenAI's API: chat completions, streamed or not, and embeddings.

    PATH is a GGUF file or a Transformers folder, NAME a model of `pinfold model list`. Tool calls that the model
    writes as text reach the client as tool calls. The address goes to stdout once the server is ready.
    """
    serving = ServeOptions(what=what, host=host, port=port, key=key, context=context)
    anyio.run(serve_model, serving, say, _announce)


def _announce(url: str, name: str) -> None:
    click.echo(url)
    say(f"serving {name} at {url}; Ctrl-C ends it")


_PHASES = {"wait": "waiting for another pull", "download": "downloading", "check": "checking"}


def fetch(name: str) -> None:
    """Download a model with progress; silent if it is here already. Raises PinfoldError."""
    shown = ProgressDisplay(step=0.1)
    began = time.monotonic()

    def show(pulling: Pulling) -> None:
        counted = f"{pulling.done / 1e6:,.0f} of {pulling.total / 1e6:,.0f} MB" if pulling.total else ""
        shown.show(_PHASES[pulling.phase], pulling.done, pulling.total, counted)

    def leave(*_: object) -> None:
        """Exit at once: cancelling would wait for name resolution. The partial file can be resumed."""
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        os.write(2, f"{clear}pinfold: stopped; the next pull continues from here\n".encode())
        os._exit(130)

    before = signal.signal(signal.SIGINT, leave)
    try:
        path = anyio.run(pull_model, name, show)
    finally:
        signal.signal(signal.SIGINT, before)
        shown.end()
    if shown.began:
        what = f"{find_weights(name)[0].title}, {path}" if path else name
        say(f"ready in {time.monotonic() - began:.0f} s: {what}")
