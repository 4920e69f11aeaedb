"""What the suite runs as the client: ours, told by the environment what to do, the address last.

MCP_CONFORMANCE_SCENARIO=tools_call python bench/conformance_suite/client.py http://127.0.0.1:3000/mcp
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import anyio
import httpx2

from pinfold.events import Json
from pinfold.tools import Tool, ToolError
from pinfold.tools.mcp.ports import McpPorts
from pinfold.tools.mcp.servers import Servers
from pinfold.tools.mcp.spec import OAuth, ServerSpec

NAME = "suite"
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
CALLS: Mapping[str, Sequence[tuple[str, dict[str, Any]]]] = {
    "initialize": (),
    "json-schema-ref-no-deref": (),
    "tools_call": (("add_numbers", {"a": 5, "b": 3}),),
    "request-metadata": (("add_numbers", {"a": 5, "b": 3}),),
    "http-standard-headers": (("add_numbers", {"a": 5, "b": 3}),),
    "sse-retry": (("test_reconnection", {}),),
    "elicitation-sep1034-client-defaults": (("test_client_elicitation_defaults", {}),),
    "sep-2322-client-request-state": (
        ("test_mrtr_echo_state", {}),
        ("test_mrtr_unrelated", {}),
        ("test_mrtr_no_state", {}),
        ("test_mrtr_no_result_type", {}),
    ),
}
STUBS: Mapping[str, Any] = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}


class Pins:
    """Of one run."""

    def __init__(self) -> None:
        self._kept: dict[str, Mapping[str, Json]] = {}

    def get(self, server: str) -> Mapping[str, Json] | None:
        return self._kept.get(server)

    def put(self, server: str, manifest: Mapping[str, Json]) -> None:
        self._kept[server] = manifest

    def is_trusted(self, server: str) -> bool:
        return bool(server)


class Tokens:
    """Of one run."""

    def __init__(self) -> None:
        self._kept: dict[str, str | None] = {}

    def get(self, server: str) -> str | None:
        return self._kept.get(server)

    def put(self, server: str, text: str | None) -> None:
        self._kept[server] = text


class Yes:
    """A person who takes every default and signs in wherever they are sent; and a model that says nothing."""

    async def elicit(self, server: str, message: str, schema: Mapping[str, Json]) -> Mapping[str, Json] | None:
        del server, message
        fields: Mapping[str, Any] = schema.get("properties") or {}
        filled = {name: field["default"] for name, field in fields.items() if "default" in field}
        return {**filled, **({"confirmed": True} if "confirmed" in fields else {})}

    async def open_page(self, server: str, url: str, why: str) -> bool:
        del server, why
        async with httpx2.AsyncClient(follow_redirects=True, timeout=20) as browser:
            await browser.get(url)
        return True

    async def sample(
        self, server: str, messages: Sequence[Mapping[str, Json]], *, system: str, max_tokens: int
    ) -> tuple[str, str] | None:
        del server, messages, system, max_tokens
        return "", "stub"


class NoPrograms:
    def start(self, spec: ServerSpec) -> Any:
        raise ToolError(f"{spec.name} is no program")


def wanted(scenario: str, tools: Mapping[str, Tool[..., Any]]) -> Sequence[tuple[str, dict[str, Any]]]:
    match scenario:
        case "json-schema-2020-12-preservation":
            return [("json_schema_echo", {"schema": dict(tools["json_schema_2020_12_tool"].parameters or {})})]
        case "http-custom-headers":
            given: list[dict[str, Any]] = CONTEXT.get("toolCalls", [])
            return [(one["name"], one.get("arguments") or {}) for one in given]
        case "http-invalid-tool-headers":
            return [(name, stubs(tool)) for name, tool in tools.items()]
        case _ if scenario in CALLS:
            return CALLS[scenario]
        case _:
            first = next(iter(tools), None)
            return [(first, {})] if first else []


def stubs(tool: Tool[..., Any]) -> dict[str, Any]:
    schema: Mapping[str, Any] = tool.parameters or {}
    fields: Mapping[str, Any] = schema.get("properties") or {}
    return {name: STUBS.get(fields.get(name, {}).get("type"), "x") for name in schema.get("required", ())}


async def issuer(url: str) -> str:
    """A user knows whom a secret is for; the suite says it in the server's own description."""
    where = urlsplit(url)
    page = f"{where.scheme}://{where.netloc}/.well-known/oauth-protected-resource{where.path}"
    async with httpx2.AsyncClient(timeout=20) as browser:
        return str((await browser.get(page)).json()["authorization_servers"][0])


async def main(url: str, scenario: str) -> None:
    client = str(CONTEXT.get("client_id") or "")
    grant = "client_credentials" if "client-credentials" in scenario else "code"
    oauth = OAuth(
        grant=grant,
        client_id=client,
        client_secret=str(CONTEXT.get("client_secret") or ""),
        issuer=await issuer(url) if grant == "client_credentials" else "",
    )
    spec = ServerSpec(
        name=NAME, transport="http", url=url, oauth=oauth if client else None, timeout_s=20, origin="the suite"
    )
    yes = Yes()
    world = McpPorts(
        start_program=NoPrograms().start,
        pins=Pins(),
        credentials=Tokens(),
        person=yes,
        sampler=yes,
        roots=(),
        on_changed=lambda _: None,
        notice=lambda line: print(line, file=sys.stderr),
    )
    async with Servers([spec], world) as servers:
        tools = {tool.name.removeprefix(f"{NAME}."): tool for tool in await servers.tools(NAME)}
        print("tools:", ", ".join(tools), file=sys.stderr)
        for name, args in wanted(scenario, tools):
            if name not in tools:
                print(f"{name} is not offered", file=sys.stderr)
                continue
            try:
                print(name, await tools[name].function(**tools[name].check_arguments(args)), file=sys.stderr)
            except ToolError as error:
                print(f"{name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1], os.environ.get("MCP_CONFORMANCE_SCENARIO", "initialize"))
