"""Turns the methods of a made-up server into tools, declared as real MCP servers declare theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from bench.tokens.servers.records import EFFECT
from msgspec.structs import replace

from pinfold.events import Json
from pinfold.tools import Tool, tool

_TYPESCRIPT = ("crm", "drive", "issues", "messages", "monitor", "posts", "travel", "vehicle", "wiki")
"""Servers that declare their tools in the manner of the official TypeScript SDK, as half of the real ones do."""


def make_tools(name: str, make_server: Callable[[], object], closing: str) -> list[Tool[..., Any]]:
    """The marked methods of a new server, in the order they are written; `closing` ends the description of each."""
    server = make_server()
    kind = type(server)
    marked = [attribute for attribute in vars(kind) if hasattr(getattr(kind, attribute), EFFECT)]
    return [replace(_declare(name, kind, one, closing), function=getattr(server, one)) for one in marked]


@cache
def _declare(name: str, kind: type, attribute: str, closing: str) -> Tool[..., Any]:
    method = getattr(kind(), attribute)
    declared = tool(effect=getattr(method, EFFECT))(method)
    full = f"{name}.{declared.name}"
    parameters = _python_schema(declared)
    return replace(
        declared,
        name=full,
        server=name,
        description=f"{declared.description} {closing}".rstrip(),
        parameters=_typescript_schema(parameters) if name in _TYPESCRIPT else parameters,
        returns=result_schemas().get(full),
        takes=declared.arguments,
    )


@cache
def result_schemas() -> dict[str, Json]:
    """By the name of the tool; a test reads them off real results."""
    return json.loads(Path(__file__).with_name("results.json").read_text(encoding="utf-8"))


def _python_schema(declared: Tool[..., Any]) -> Mapping[str, Json]:
    """As a server made with the official Python SDK has it: with titles and nulls."""
    from pydantic import Field, create_model

    hints = get_type_hints(declared.function)
    fields: dict[str, Any] = {}
    for argument in declared.arguments:
        default = ... if argument.is_required else argument.default
        fields[argument.name] = (hints[argument.name], Field(default, description=argument.description))
    return create_model(f"{declared.name}Arguments", **fields).model_json_schema()


def _typescript_schema(schema: Mapping[str, Json]) -> Mapping[str, Json]:
    """Without titles and nulls, but with the draft it follows."""
    properties: dict[str, Json] = {}
    for name, one in schema.get("properties", {}).items():
        kept = {key: value for key, value in one.items() if key not in ("title", "anyOf")}
        if "anyOf" in one:
            kept = {**one["anyOf"][0], **{key: value for key, value in kept.items() if key != "default"}}
        properties[name] = kept
    required = {"required": schema["required"]} if "required" in schema else {}
    return {
        "type": "object",
        "properties": properties,
        **required,
        "additionalProperties": False,
        "$schema": "http://json-schema.org/draft-07/schema#",
    }
