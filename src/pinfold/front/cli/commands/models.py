"""`pinfold model`: models of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import click

from pinfold.app.models.local_models import (
    BuiltinModel,
    FoundServer,
    Reachable,
    ServeOptions,
    reachable_models,
    serve_model,
)
from pinfold.events import plain_json
from pinfold.front.cli.model_download import fetch
from pinfold.front.cli.progress import say
from pinfold.text import presentable_line, without_known

_KINDS = {
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "openai": "a server that speaks as OpenAI does",
}


@click.group("model")
def model_command() -> None:
    """List, fetch and serve models of this machine."""


@model_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_models(as_json: bool) -> None:
    """Print what could answer: Pinfold's own models, servers of this machine, providers whose key is set.

    Each with the name to give to --model, the size of its context in tokens, and whether it calls tools itself.
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
        key = ", wants a key" if server.needs_key else ""
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
    """Fetch a model: weights for Pinfold's own use, or a model for Ollama.

    What is here already is left as it is, and nothing is printed. A pull that broke off goes on where it was.
    """
    fetch(name)


@model_command.command("serve")
@click.argument("what", metavar="PATH|NAME")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="0 for any that is free.")
@click.option("--host", default="127.0.0.1", help="Elsewhere than on this machine it needs a --key.")
@click.option("--key", metavar="KEY", help="Answer only those who send this key.")
@click.option("--context", type=click.IntRange(min=256), help="Tokens of context, for a GGUF file.")
def serve(what: str, port: int, host: str, key: str | None, context: int | None) -> None:
    """Serve a model as OpenAI would: chat completions, streamed or not, and embeddings.

    PATH is a GGUF file or a Transformers folder, NAME a model of `pinfold model list`. Calls that the model writes
    as text reach the client as tool calls. The address goes to stdout once it can be used.
    """
    serving = ServeOptions(what=what, host=host, port=port, key=key, context=context)
    anyio.run(serve_model, serving, say, _announce)


def _announce(url: str, name: str) -> None:
    click.echo(url)
    say(f"serving {name} at {url}; Ctrl-C ends it")
