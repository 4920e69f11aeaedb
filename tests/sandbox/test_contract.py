"""unsafe-local keeps the contract, check by check; and the kit that says so can fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from pinfold.sandbox import (
    Capabilities,
    CommandOutcome,
    OnCall,
    Outcome,
    Provider,
    Resumable,
    Resumed,
    SandboxUnavailable,
    Session,
    Spec,
    Variable,
    provider_named,
)
from pinfold.sandbox.contract import OnOutput, What
from pinfold.testing import SANDBOX_CHECKS, Check, CheckResult, SandboxReport, run_check, sandbox_contract

pytestmark = [pytest.mark.integration, pytest.mark.installed]

LOCAL = provider_named("unsafe-local")


@pytest.mark.parametrize("check", SANDBOX_CHECKS, ids=lambda check: check.name.replace(" ", "-"))
async def test_unsafe_local_keeps_the_contract(check: Check) -> None:
    result = await run_check(check, LOCAL)
    if result.verdict == "skipped":
        pytest.skip(result.reason)
    assert result == CheckResult(name=check.name, verdict="passed")


def test_the_kit_has_enough_checks_with_names_of_their_own() -> None:
    assert len({check.name for check in SANDBOX_CHECKS}) == len(SANDBOX_CHECKS) >= 20


def test_a_report_in_which_nothing_was_tried_is_not_ok() -> None:
    assert not SandboxReport(provider="none", results=()).ok


class Faulty:
    """A session like the real one but for what a subclass spoils."""

    def __init__(self, real: Session, provider: FaultyProvider, spec: Spec) -> None:
        self.real = real
        self.provider = provider
        self.spec = spec

    @property
    def capabilities(self) -> Capabilities:
        return self.provider.capabilities

    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        return await self.real.run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)

    async def interrupt(self) -> None:
        await self.real.interrupt()

    async def fork(self) -> Session:
        return await self.real.fork()

    async def keep(self, branch: Session) -> None:
        await self.real.keep(branch)

    async def undo(self, to: int | None = None, what: What = "all") -> None:
        await self.real.undo(to, what)

    async def redo(self) -> None:
        await self.real.redo()

    async def variables(self) -> tuple[Variable, ...]:
        return await self.real.variables()

    async def put(self, path: str, data: bytes) -> None:
        await self.real.put(path, data)

    async def get(self, path: str) -> bytes:
        return await self.real.get(path)

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        workdir: str = "",
        on_output: OnOutput | None = None,
        read_only: bool = False,
    ) -> CommandOutcome:
        return await self.real.command(
            argv, timeout_s=timeout_s, env=env, stdin=stdin, workdir=workdir, on_output=on_output, read_only=read_only
        )

    async def close(self) -> None:
        await self.real.close()


class FaultyProvider:
    def __init__(self, session: type[Faulty] = Faulty, capabilities: Capabilities | None = None) -> None:
        self.opened: list[Session] = []
        self._session = session
        self._capabilities = capabilities or LOCAL.capabilities

    @property
    def name(self) -> str:
        return "faulty"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def notice(self) -> str | None:
        return LOCAL.notice

    async def open(self, spec: Spec) -> Session:
        real = await LOCAL.open(spec)
        self.opened.append(real)
        return self._session(real, self, spec)


class NoOutput(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        return replace(await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call), stdout="")


class NoDisplays(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        return replace(await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call), displays=())


class LastDisplayFirst(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        outcome = await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)
        return replace(outcome, displays=outcome.displays[::-1])


class StrictDisplays(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        outcome = await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)
        return replace(outcome, status="error") if "failed" in outcome.stderr else outcome


class EndlessDisplays(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        outcome = await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)
        return replace(outcome, displays=outcome.displays * 100)


class EveryCellTheFirst(Faulty):
    async def variables(self) -> tuple[Variable, ...]:
        return tuple(replace(variable, cell=1) for variable in await self.real.variables())


class LateOutput(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        outcome = await super().run(code, timeout_s=timeout_s and 0.5, on_call=on_call)
        if on_output is not None:
            on_output("stdout", outcome.stdout)
        return outcome


class SilentLoss(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        outcome = await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)
        return replace(outcome, state_lost=False, rolled_back=outcome.state_lost)


class ForgetsAtTimeout(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        outcome = await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)
        if outcome.status == "timeout":
            await super().run("globals().pop('x', None)")
        return outcome


class DeafToInterrupt(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        return await super().run(code, timeout_s=timeout_s and 1, on_output=on_output, on_call=on_call)

    async def interrupt(self) -> None:
        return


class PlainPaths(Faulty):
    async def get(self, path: str) -> bytes:
        return (self.spec.workspace / path).read_bytes()


class CuriousVariables(Faulty):
    async def variables(self) -> tuple[Variable, ...]:
        await self.real.run("[repr(value) for value in list(globals().values())]")
        return await self.real.variables()


class LeavesProcesses(Faulty):
    async def close(self) -> None:
        return


class LeaksEnvironment(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        await super().run(f"import os; os.environ.update({dict(os.environ)!r})")
        return await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)


class ForksAnyway(Faulty):
    async def fork(self) -> Session:
        return self


class RunsAfterClose(Faulty):
    async def close(self) -> None:
        return


class DropsSite(Faulty):
    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        await super().run("import sys; sys.path[:] = [path for path in sys.path if '/site/' not in path]")
        return await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)


class OneAtATime(Faulty):
    runs = False

    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        self.runs = True
        try:
            return await super().run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call)
        finally:
            self.runs = False

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        workdir: str = "",
        on_output: OnOutput | None = None,
        read_only: bool = False,
    ) -> CommandOutcome:
        if self.runs:
            raise SandboxUnavailable("a cell runs")
        return await super().command(
            argv, timeout_s=timeout_s, env=env, stdin=stdin, workdir=workdir, on_output=on_output, read_only=read_only
        )


class DeafToCommands(Faulty):
    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        workdir: str = "",
        on_output: OnOutput | None = None,  # noqa: ARG002 - that is the fault
        read_only: bool = False,
    ) -> CommandOutcome:
        return await super().command(
            argv, timeout_s=timeout_s, env=env, stdin=stdin, workdir=workdir, read_only=read_only
        )


class CommandsCountForNothing(Faulty):
    """But cells do."""

    @property
    def path(self) -> tuple[int, ...]:
        assert isinstance(self.real, Resumable)
        return self.real.path

    @property
    def resumed(self) -> Resumed | None:
        return None

    async def describe_uncovered(self) -> tuple[str, ...]:
        return ()

    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
        cell: int | None = None,
    ) -> Outcome:
        assert isinstance(self.real, Resumable)
        return await self.real.run(code, timeout_s=timeout_s, on_output=on_output, on_call=on_call, cell=cell)

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        workdir: str = "",
        on_output: OnOutput | None = None,
        read_only: bool = False,
        cell: int | None = None,  # noqa: ARG002 - that is the fault
    ) -> CommandOutcome:
        return await super().command(
            argv, timeout_s=timeout_s, env=env, stdin=stdin, workdir=workdir, on_output=on_output, read_only=read_only
        )


def saying(**capabilities: bool) -> Callable[[], FaultyProvider]:
    return lambda: FaultyProvider(capabilities=replace(LOCAL.capabilities, **capabilities))


def with_sessions(kind: type[Faulty]) -> Callable[[], FaultyProvider]:
    return lambda: FaultyProvider(kind)


@pytest.mark.parametrize(
    ("make", "caught_by"),
    [
        (saying(isolated=True), "an isolated session cannot read a file outside"),
        (saying(fork=True), "a branch starts equal and goes its own way"),
        (saying(fork=True), "undo takes back exactly the last cell"),
        (saying(fork=True), "a kept branch becomes the session"),
        (saying(fork=True), "undo to a cell is the state after it and redo comes back"),
        (saying(fork=True), "a cell that crashes is rolled back"),
        (saying(mounts=True), "data is mounted"),
        (with_sessions(DropsSite), "what is installed meanwhile can be imported"),
        (with_sessions(ForksAnyway), "without the capability fork and undo are not supported"),
        (with_sessions(NoOutput), "stdout and stderr come apart"),
        (with_sessions(NoDisplays), "a rich value is displayed and its text is the value"),
        (with_sessions(LastDisplayFirst), "displays come in order"),
        (with_sessions(StrictDisplays), "a display that fails does not break the cell"),
        (with_sessions(EndlessDisplays), "many and large displays are bounded"),
        (with_sessions(EveryCellTheFirst), "a variable tells the cell that bound it or none"),
        (with_sessions(LateOutput), "output comes while the cell still runs"),
        (with_sessions(SilentLoss), "a process that exits is killed and the next cell runs"),
        (with_sessions(SilentLoss), "a cell that cannot be interrupted is ended within its limits"),
        (with_sessions(ForgetsAtTimeout), "a timeout keeps the variables"),
        (with_sessions(DeafToInterrupt), "an interrupted cell keeps the variables"),
        (with_sessions(PlainPaths), "a path out of the workspace is refused"),
        (with_sessions(CuriousVariables), "listing variables never runs their code"),
        (with_sessions(LeavesProcesses), "close ends what the session started"),
        (with_sessions(LeaksEnvironment), "the hosts environment stays outside"),
        (with_sessions(OneAtATime), "a command runs while a cell waits for a call"),
        (with_sessions(DeafToCommands), "what a command writes is heard as it comes"),
        (with_sessions(CommandsCountForNothing), "a command that counts as a cell is undone and redone"),
        (with_sessions(CommandsCountForNothing), "a command that times out or is cancelled can be undone"),
        (with_sessions(RunsAfterClose), "close may be called twice and nothing runs after"),
    ],
)
async def test_a_broken_provider_is_caught(make: Callable[[], FaultyProvider], caught_by: str) -> None:
    provider = make()
    check = next(check for check in SANDBOX_CHECKS if check.name == caught_by)
    try:
        result = await run_check(check, provider)
    finally:
        for session in provider.opened:
            await session.close()
    assert result.verdict == "failed", result
    assert result.reason


@pytest.mark.slow
async def test_the_whole_contract_makes_one_report(tmp_path: Path) -> None:
    provider: Provider = FaultyProvider(CuriousVariables)
    with anyio.fail_after(200):
        report = await sandbox_contract(provider)
    assert len(report.results) == len(SANDBOX_CHECKS)
    assert not report.ok
    assert "failed  listing variables never runs their code" in str(report)
