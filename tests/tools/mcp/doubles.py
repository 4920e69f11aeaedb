"""A plain world for servers: programs as subprocesses of this machine, pins and tokens in memory, people who say what they are told to."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.abc import Process as AnyioProcess
from tests.fork_server import forked

from pinfold.events import Json
from pinfold.tools import BadCall
from pinfold.tools.mcp.ports import Limits, McpPorts
from pinfold.tools.mcp.servers import Servers
from pinfold.tools.mcp.spec import ServerSpec

WITHIN_S = 30.0
HERE = Path(__file__).parent / "servers"


async def until(is_so: Callable[[], bool]) -> None:
    """What another process does cannot be waited for otherwise."""
    with anyio.fail_after(WITHIN_S):
        while not is_so():
            await anyio.sleep(0.01)


def spec(name: str, script: str = "", *args: str, **more: Any) -> ServerSpec:
    program = (str(HERE / f"{script or name}.py"), *args)
    # A fork dies a moment after the process that stands for it: what needs no SDK is started and killed itself.
    command = tuple(forked(*program)) if script == "everyday" or name == "everyday" else program
    return ServerSpec(name=name, transport="stdio", command=sys.executable, args=command, **more)


class _Running:
    def __init__(self, process: AnyioProcess) -> None:
        assert process.stdin
        assert process.stdout
        self.process = process
        self.stdin: ByteSendStream = process.stdin
        self.stdout: ByteReceiveStream = process.stdout
        self.said = ""

    async def wait_for_exit(self) -> int | None:
        return await self.process.wait()

    async def listen(self) -> None:
        assert self.process.stderr
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async for chunk in self.process.stderr:
                self.said = (self.said + chunk.decode("utf-8", "replace"))[-4_000:]


@dataclass
class Subprocesses:
    started: list[str] = field(default_factory=list[str])
    running: dict[str, int] = field(default_factory=dict[str, int])

    @asynccontextmanager
    async def start(self, spec: ServerSpec) -> AsyncGenerator[_Running]:
        self.started.append(spec.name)
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **spec.env}
        try:
            process = await anyio.open_process(
                [spec.command, *spec.args], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env
            )
        except OSError as error:
            raise BadCall(f"{spec.command} cannot be run: {error.strerror}") from error
        self.running[spec.name] = process.pid
        try:
            async with anyio.create_task_group() as tasks:
                running = _Running(process)
                tasks.start_soon(running.listen)
                try:
                    yield running
                finally:
                    with suppress(ProcessLookupError):
                        process.kill()
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await process.wait()
                await process.aclose()
            self.running.pop(spec.name, None)

    def kill(self, name: str) -> None:
        os.kill(self.running[name], signal.SIGKILL)


@dataclass
class MemoryPins:
    kept: dict[str, Mapping[str, Json]] = field(default_factory=dict[str, Mapping[str, Json]])
    trusted: set[str] = field(default_factory=set[str])

    def get(self, server: str) -> Mapping[str, Json] | None:
        return self.kept.get(server)

    def put(self, server: str, manifest: Mapping[str, Json]) -> None:
        self.kept[server] = manifest

    def is_trusted(self, server: str) -> bool:
        return server in self.trusted


@dataclass
class MemoryCredentials:
    kept: dict[str, str] = field(default_factory=dict[str, str])

    def get(self, server: str) -> str | None:
        return self.kept.get(server)

    def put(self, server: str, text: str | None) -> None:
        if text is None:
            self.kept.pop(server, None)
        else:
            self.kept[server] = text


@dataclass
class Somebody:
    """Answers every form with `fills`, and agrees to every page or to none."""

    fills: Mapping[str, Json] | None = None
    agrees: bool = False
    asked: list[tuple[str, str, Json]] = field(default_factory=list[tuple[str, str, Json]])

    async def elicit(self, server: str, message: str, schema: Mapping[str, Json]) -> Mapping[str, Json] | None:
        self.asked.append((server, message, schema))
        return self.fills

    async def open_page(self, server: str, url: str, why: str) -> bool:
        self.asked.append((server, url, why))
        return self.agrees


@dataclass
class Parrot:
    says: str | None = None
    asked: list[Json] = field(default_factory=list[Json])

    async def sample(
        self, server: str, messages: Sequence[Mapping[str, Json]], *, system: str, max_tokens: int
    ) -> tuple[str, str] | None:
        self.asked.append((server, list(messages), system, max_tokens))
        return None if self.says is None else (self.says, "parrot")


@dataclass
class House:
    """Everything that `Servers` needs, kept so that tests can look at it."""

    programs: Subprocesses = field(default_factory=Subprocesses)
    pins: MemoryPins = field(default_factory=MemoryPins)
    credentials: MemoryCredentials = field(default_factory=MemoryCredentials)
    person: Any = field(default_factory=Somebody)
    sampler: Parrot = field(default_factory=Parrot)
    roots: tuple[Path, ...] = ()
    changed: list[str] = field(default_factory=list[str])
    notices: list[str] = field(default_factory=list[str])

    def servers(self, *specs: ServerSpec, limits: Limits | None = None) -> Servers:
        world = McpPorts(
            start_program=self.programs.start,
            pins=self.pins,
            credentials=self.credentials,
            person=self.person,
            sampler=self.sampler,
            roots=self.roots,
            on_changed=self.changed.append,
            notice=self.notices.append,
        )
        return Servers(specs, world, limits or Limits(start_s=200))
