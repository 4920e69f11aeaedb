"""The MCP servers of a session, by name. Each is started when first used; its failure does not affect the others."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import anyio
from anyio.abc import TaskGroup

from pinfold.events import Effect, Json, Reach, Sent, map_leaves
from pinfold.net import parse_url
from pinfold.tools.mcp.manifest import Difference, Entry, Manifest
from pinfold.tools.mcp.ports import Limits, McpPorts
from pinfold.tools.mcp.schema_check import Shape, arguments_of
from pinfold.tools.mcp.server_lifecycle import ServerLifecycle, Status
from pinfold.tools.mcp.spec import ServerSpec, is_loopback
from pinfold.tools.results import BadCall, BadTool, Result, ToolFailed
from pinfold.tools.tool import AnyTool, Tool

if TYPE_CHECKING:
    from pinfold.tools.mcp.passthrough import ClientHello, Line, Peer


Relay: TypeAlias = Callable[[str], Awaitable[Result]]
"""Sends a call over the client's own line, given the digest of what the user agreed to. Raises BadCall."""
_relay: ContextVar[Relay | None] = ContextVar("relay", default=None)


def _object(*required: str, **properties: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_STRING: Mapping[str, Json] = {"type": "string"}
_LIST: Mapping[str, Json] = {"type": "array", "items": {"type": "object"}}
_FILLED: Mapping[str, Json] = {"type": "object", "additionalProperties": _STRING, "default": {}}
_EXTRAS: Mapping[str, tuple[str, Mapping[str, Json], Mapping[str, Json] | None]] = {
    "list_resources": ("List the resources of the server, each with its `uri`.", _object(), _LIST),
    "list_resource_templates": ("List URI patterns that the server can read once filled in.", _object(), _LIST),
    "read_resource": ("Read a resource of the server by its `uri`: text or bytes.", _object("uri", uri=_STRING), None),
    "list_prompts": ("List the prompts that the server has, with their arguments.", _object(), _LIST),
    "get_prompt": (
        "Get a prompt with its arguments filled in.",
        _object("name", name=_STRING, arguments=_FILLED),
        None,
    ),
}
"""What the protocol offers besides tools: (description, parameters, result)."""


@contextmanager
def relaying(relay: Relay) -> Generator[None]:
    """Send this task's calls of server tools through `relay` instead of the session's own connection."""
    token = _relay.set(relay)
    try:
        yield
    finally:
        _relay.reset(token)


def offered_tools(life: ServerLifecycle, pinned: Manifest, limits: Limits, *, is_trusted: bool) -> tuple[AnyTool, ...]:
    """Build the tools the user agreed to that still exist; changed ones need approval for each call."""
    made: list[AnyTool] = []
    held = life.difference()
    for name, entry in sorted(pinned.entries.items()):
        now = entry if life.now is None else life.now.entries.get(name)
        if now is None or (entry.extra and name not in _EXTRAS):
            continue
        change = held.of(name)
        made.append(_tool(life, entry, now.digest, limits, is_trusted=is_trusted, held=change.diff if change else ""))
    return tuple(made)


def _tool(life: ServerLifecycle, entry: Entry, agreed: str, limits: Limits, *, is_trusted: bool, held: str) -> AnyTool:
    spec = life.spec
    if entry.extra:
        description, parameters, returns = _EXTRAS[entry.name]
    else:
        description = entry.text("description") or entry.text("title")
        parameters, returns = entry.table("inputSchema") or _object(), entry.table("outputSchema")
    title = f"{spec.name}.{entry.name}"
    is_trusted = is_trusted and not held
    effect = _effect(entry) if is_trusted else "once"
    return Tool(
        function=_Call(life, entry, agreed, None if returns is None else Shape(returns)).call,
        name=title,
        description=description,
        effect=effect,
        timeout_s=limits.total_s(spec.timeout_s),
        parallel_safe=effect == "pure",
        parameters=parameters,
        reach=_reach(spec, entry, is_trusted=is_trusted),
        trust="untrusted",
        takes=arguments_of(parameters),
        server=spec.name,
        returns=returns,
        validate=partial(_check, title, Shape(parameters)),
        held=held,
    )


def _effect(entry: Entry) -> Effect:
    said = entry.table("annotations") or {}
    if entry.extra or said.get("readOnlyHint") is True:
        return "pure"
    return "keyed" if said.get("idempotentHint") is True else "once"


def _reach(spec: ServerSpec, entry: Entry, *, is_trusted: bool) -> Reach:
    """Return what a call can reach: for a program, as configured, or as claimed if trusted; else the outside."""
    if spec.transport == "stdio" and spec.reach:
        return spec.reach
    said = entry.table("annotations") or {}
    closed = said.get("readOnlyHint") is True and said.get("openWorldHint") is False
    if spec.transport == "stdio" and is_trusted and closed:
        return "nothing"
    return "network" if spec.reach == "network" else "outside"


def _check(title: str, shape: Shape, args: Json) -> Mapping[str, Any]:
    """Return the arguments ready to be sent. Raises ToolFailed with one line."""
    if not isinstance(args, Mapping):
        raise ToolFailed(f"wrong arguments for {title}: they must be an object")
    plain: dict[str, Json] = map_leaves(dict(cast("Mapping[str, Json]", args)), _encode_bytes)
    try:
        json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise ToolFailed(f"wrong arguments for {title}: JSON cannot hold them (NaN, or half a character)") from None
    faults = shape.faults(plain)
    if faults:
        # Models write null for optional arguments.
        plain = {key: one for key, one in plain.items() if one is not None or key in shape.required}
        faults = shape.faults(plain)
    if faults:
        raise ToolFailed(f"wrong arguments for {title}: {'; '.join(faults)}")
    return plain


def _encode_bytes(value: Json) -> Json:
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else value


@dataclass(frozen=True)
class _Call:
    life: ServerLifecycle
    entry: Entry
    agreed: str
    shape: Shape | None

    async def call(self, **arguments: Json) -> Result:
        spec, relay = self.life.spec, _relay.get()
        out = len(json.dumps(arguments, ensure_ascii=False).encode())
        result = await (relay(self.agreed) if relay else self._ask(arguments, out))
        sent = sent_to(spec, out, len(result.text.encode("utf-8", "replace")))
        return Result(text=result.text, value=result.value, untrusted=True, sent=sent)

    async def _ask(self, arguments: Mapping[str, Json], out: int) -> Result:
        name, ask = self.entry.name, partial(self.life.ask, self.entry.name, self.agreed)
        answer = await ask(lambda one: one.call(name, arguments)) if not self.entry.extra else None
        from pinfold.tools.mcp import values

        if answer is not None:
            try:
                return values.of_call(answer, self.shape)
            except BadCall as error:
                raise BadCall(str(error), sent=sent_to(self.life.spec, out, len(str(error)))) from None
        match name:
            case "read_resource":
                return values.of_resource(await ask(lambda one: one.read_resource(arguments["uri"])))
            case "get_prompt":
                filled = cast("Mapping[str, str]", arguments.get("arguments") or {})
                return values.of_prompt(await ask(lambda one: one.get_prompt(arguments["name"], filled)))
            case _:
                return values.of_listing(await ask(lambda one: one.list_all(name)))


def sent_to(spec: ServerSpec, out: int, back: int) -> tuple[Sent, ...]:
    """Report the bytes sent to and received from a server on another machine; empty for a local one."""
    if spec.transport == "stdio" or is_loopback(url := parse_url(spec.url)):
        return ()
    return (Sent(to=str(url.destination), out=out, back=back),)


class Servers:
    """An async context manager; on exit it ends every server it started."""

    def __init__(self, specs: Sequence[ServerSpec], world: McpPorts, limits: Limits | None = None) -> None:
        self._specs = {spec.name: spec for spec in specs}
        if len(self._specs) != len(specs):
            raise BadTool("two MCP servers have the same name; rename one")
        self._limits = limits or Limits()
        self._world = world
        self._tasks: TaskGroup | None = None
        self._lives: dict[str, ServerLifecycle] = {}

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._lives = {
            name: ServerLifecycle(spec, self._world, self._limits, self._tasks) for name, spec in self._specs.items()
        }
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._tasks is not None
        try:
            with anyio.CancelScope(shield=True):
                await self.close()
        finally:
            self._tasks.cancel_scope.cancel()
            # Pass no error to the task group, so that an error of the body reaches the caller unchanged.
            await self._tasks.__aexit__(None, None, None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._specs)

    def status(self, name: str) -> Status:
        return self._life(name).status()

    async def start(self, *names: str) -> Mapping[str, str]:
        """Start these servers concurrently, all if none is named. Return those that failed, with the reason."""
        failed: dict[str, str] = {}

        async def start(name: str) -> None:
            try:
                await self._life(name).connect()
            except BadCall as error:
                failed[name] = str(error)

        async with anyio.create_task_group() as tasks:
            for name in names or self.names:
                tasks.start_soon(start, name)
        return failed

    async def tools(self, name: str) -> tuple[AnyTool, ...]:
        """Connect, and return the tools the user agreed to that the server still offers. Raises BadCall."""
        await self._life(name).connect()
        return self.pinned_tools(name) or ()

    def pinned_tools(self, name: str) -> tuple[AnyTool, ...] | None:
        """Return the tools the user agreed to, without starting the server; None if it was never started.

        A call connects. If the server then describes the tool differently, the call fails.
        """
        life = self._life(name)
        pinned = life.load_pinned()
        return pinned and offered_tools(life, pinned, self._limits, is_trusted=self.is_trusted(name))

    def is_trusted(self, name: str) -> bool:
        """True if the user trusts the server's annotations of its tools."""
        return self._world.pins.is_trusted(name)

    def line(
        self, name: str, speech: ClientHello, peer: Peer, *, like: Line | None = None
    ) -> AbstractAsyncContextManager[Line]:
        """Open a separate connection over which `peer` uses the server's protocol unchanged.

        `like` is a line to the same server whose listing is copied. Raises BadCall, and MCPError if the server refuses.
        """
        from pinfold.tools.mcp.passthrough import line_to

        return line_to(self._life(name).spec, self._world, self._limits, speech, peer, like=like)

    def difference(self, name: str) -> Difference:
        """Return how the server's last listing differs from the agreed one; empty if it was not read yet."""
        return self._life(name).difference()

    def accept(self, name: str) -> None:
        """Record that the user agrees to the server's last listing."""
        self._life(name).accept()

    async def close(self) -> None:
        """End all servers. Later calls fail."""
        for life in self._lives.values():
            life.stop()
        with anyio.move_on_after(self._limits.close_s * 2):
            for life in self._lives.values():
                await life.idle.wait()

    def _life(self, name: str) -> ServerLifecycle:
        life = self._lives.get(name)
        if life is None:
            known = ", ".join(self._specs) or "none is configured"
            raise BadCall(f"no MCP server is called {name!r}; there is {known}")
        return life
