"""The framework of the contract's checks, and the checks that a provider's capabilities are true and complete."""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from pinfold.sandbox.contract import Limits, NotSupported, Outcome, Provider, Session, Spec

Need: TypeAlias = Literal[
    "isolated", "fork", "files_view", "sockets", "mounts", "site", "calls", "commands", "read_only_commands",
    "calls and commands", "durable and commands", "local", "no fork"
]  # fmt: skip
"""What a provider must declare for a check to apply."""


_Error = TypeVar("_Error", bound=Exception)


class ContractBroken(AssertionError):
    """A provider does not do what the contract says; the text says what."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Opens sessions of the provider under test, in a folder used by one check only."""

    provider: Provider
    folder: Path
    """The workspace. `outside` lies next to it, so that a path that leads out of the workspace harms nothing."""

    @property
    def outside(self) -> Path:
        return self.folder.parent / "outside"

    @asynccontextmanager
    async def session(
        self,
        limits: Limits | None = None,
        data: Mapping[str, Path] | None = None,
        site: Path | None = None,
        view: Path | None = None,
        state: Path | None = None,
    ) -> AsyncGenerator[Session]:
        spec = Spec(
            workspace=self.folder, data=data or {}, limits=limits or Limits(), site=site, view=view, state=state
        )
        session = await self.provider.open(spec)
        try:
            yield session
        finally:
            await session.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One testable sentence of the contract."""

    name: str
    attempt: Callable[[Bench], Awaitable[None]] = field(repr=False)
    needs: Need | None = None

    def skip_reason(self, provider: Provider) -> str | None:
        has = provider.capabilities
        if self.needs == "local":
            return "it runs on another machine" if has.remote else None
        if self.needs == "no fork":
            return "it says it can fork" if has.fork else None
        lacking = [need for need in (self.needs or "").split(" and ") if need and not getattr(has, need)]
        return f"it does not say it has {lacking[0]!r}" if lacking else None


CHECKS: list[Check] = []


def check(needs: Need | None = None) -> Callable[[Callable[[Bench], Awaitable[None]]], Check]:
    """Register a check; its name is the function's name read as a sentence."""

    def register(attempt: Callable[[Bench], Awaitable[None]]) -> Check:
        made = Check(name=getattr(attempt, "__name__", "").replace("_", " "), attempt=attempt, needs=needs)
        CHECKS.append(made)
        return made

    return register


def check_session(needs: Need | None = None) -> Callable[[Callable[[Session], Awaitable[None]]], Check]:
    """Like `check`, for a check that needs only an open session."""

    def register(attempt: Callable[[Session], Awaitable[None]]) -> Check:
        @functools.wraps(attempt)
        async def in_session(bench: Bench) -> None:
            async with bench.session() as session:
                await attempt(session)

        return check(needs)(in_session)

    return register


def expect(holds: object, message: str) -> None:
    if not holds:
        raise ContractBroken(message)


def expect_outcome(outcome: Outcome, *, status: str, value: str | None = None) -> None:
    if outcome.status != status or outcome.value != value:
        raise ContractBroken(f"expected {status!r} with value {value!r}, got {outcome!r}")


async def expect_refused(attempt: Awaitable[object], error: type[_Error], message: str) -> _Error:
    """Return the `error` that the attempt raises. Raises ContractBroken if it succeeds."""
    try:
        await attempt
    except error as refused:
        return refused
    raise ContractBroken(message)


SOCKETS = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
accepted.sendall(b"heard")
client.recv(5)
"""


@check()
async def a_session_has_its_providers_capabilities(bench: Bench) -> None:
    async with bench.session() as session:
        expect(session.capabilities == bench.provider.capabilities, "session and provider disagree")


@check()
async def a_provider_that_does_not_isolate_says_so(bench: Bench) -> None:
    expect(bench.provider.name, "it has no name")
    expect(bench.provider.capabilities.isolated or bench.provider.notice, "it does not isolate and has no notice")


@check()
async def the_hosts_environment_stays_outside(bench: Bench) -> None:
    name, secret = "PINFOLD_CANARY_API_KEY", secrets.token_hex(16)
    os.environ[name] = secret
    try:
        async with bench.session() as session:
            outcome = await session.run("import os\ndict(os.environ)")
    finally:
        del os.environ[name]
    expect(outcome.status == "ok" and secret not in (outcome.value or ""), "a secret of the host's environment got in")


@check(needs="isolated")
async def an_isolated_session_cannot_read_a_file_outside(bench: Bench) -> None:
    canary = bench.outside / "canary"
    canary.write_text("a secret of the host", encoding="utf-8")
    async with bench.session() as session:
        outcome = await session.run(f"open({str(canary)!r}).read()")
    expect(outcome.status == "error", f"it says it is isolated, but read a file of the host: {outcome!r}")


@check_session(needs="sockets")
async def sockets_work_on_the_sessions_loopback(session: Session) -> None:
    expect_outcome(await session.run(SOCKETS, timeout_s=20), status="ok", value="b'heard'")


@check(needs="files_view")
async def what_a_session_with_a_view_writes_does_not_reach_the_workspace(bench: Bench) -> None:
    (bench.folder / "kept").write_text("as it was", encoding="utf-8")
    view = bench.outside / "view"
    view.mkdir()
    async with bench.session(view=view) as session:
        outcome = await session.run("open('kept', 'a').write('!')\nopen('made', 'w').close()\nopen('kept').read()")
        expect_outcome(outcome, status="ok", value="'as it was!'")
        found = {path.name: path.read_text(encoding="utf-8") for path in bench.folder.iterdir()}
    expect(found == {"kept": "as it was"}, f"the workspace was changed: {found!r}")


@check(needs="mounts")
async def data_is_mounted(bench: Bench) -> None:
    source = bench.outside / "numbers.csv"
    source.write_text("1,2,3", encoding="utf-8")
    async with bench.session(data={"numbers.csv": source}) as session:
        read = "open('/mnt/datasets/numbers.csv').read()"
        expect_outcome(await session.run(read), status="ok", value="'1,2,3'")
        written = await session.run("open('/mnt/datasets/numbers.csv', 'w')")
        expect(written.status == "error", "data can be written")


@check(needs="site")
async def what_is_installed_meanwhile_can_be_imported(bench: Bench) -> None:
    site = bench.outside / "site"
    site.mkdir()
    async with bench.session(site=site) as session:
        missing = await session.run("import heron")
        expect(missing.status == "error", "a module that is not there was imported")
        made = site / ".new" / "heron.py"
        made.parent.mkdir()
        made.write_text("legs = 2", encoding="utf-8")
        made.parent.rename(site / "0001")
        expect_outcome(await session.run("import heron\nheron.legs"), status="ok", value="2")
        last = "import sys\n[path for path in sys.path if path][-1]"
        expect_outcome(await session.run(last), status="ok", value=repr(str(site / "0001")))


@check_session(needs="no fork")
async def without_the_capability_fork_and_undo_are_not_supported(session: Session) -> None:
    for attempt in (session.fork, session.undo, session.redo, partial(session.keep, session)):
        await expect_refused(attempt(), NotSupported, f"it says it cannot fork, but {attempt!r} was done")


@check_session(needs="fork")
async def a_branch_starts_equal_and_goes_its_own_way(session: Session) -> None:
    await session.run("items = [1]")
    branch = await session.fork()
    try:
        await branch.run("items.append(2)")
        expect_outcome(await branch.run("items"), status="ok", value="[1, 2]")
        expect_outcome(await session.run("items"), status="ok", value="[1]")
    finally:
        await branch.close()
    expect_outcome(await session.run("items"), status="ok", value="[1]")


@check_session(needs="fork")
async def a_kept_branch_becomes_the_session(session: Session) -> None:
    await session.run("items = [1]")
    branch = await session.fork()
    await branch.run("items.append(2)")
    await session.keep(branch)
    expect_outcome(await session.run("items"), status="ok", value="[1, 2]")


@check_session(needs="fork")
async def undo_takes_back_exactly_the_last_cell(session: Session) -> None:
    await session.run("items = [1]")
    await session.run("items.append(2)")
    await session.run("items.append(3)")
    await session.undo()
    expect_outcome(await session.run("items"), status="ok", value="[1, 2]")


@check_session(needs="fork")
async def undo_to_a_cell_is_the_state_after_it_and_redo_comes_back(session: Session) -> None:
    await session.run("items = [1]")
    await session.run("items.append(2)")
    await session.undo(to=1)
    await session.redo()
    expect_outcome(await session.run("items"), status="ok", value="[1, 2]")
    await session.undo(to=1)
    expect_outcome(await session.run("items"), status="ok", value="[1]")


@check_session(needs="fork")
async def a_cell_that_crashes_is_rolled_back(session: Session) -> None:
    await session.run("items = [1]")
    outcome = await session.run("items.append(2)\nimport os\nos._exit(1)")
    expect(outcome.status == "killed" and outcome.rolled_back, f"got {outcome!r}")
    expect_outcome(await session.run("items"), status="ok", value="[1]")
