"""Commands in a real session: what they say, how they end, and jobs that go on behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pinfold.sandbox import CommandOutcome, Session
from pinfold.tools import Registry, Result, ToolFailed
from pinfold.tools.builtin.shell import reach_of, shell_tool

pytestmark = pytest.mark.integration


@dataclass
class Machine:
    """The host, as far as a test goes: it only notes what it is asked."""

    asked: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])

    async def run(self, command: str, *, workdir: str, timeout_s: float) -> CommandOutcome:
        self.asked.append((command, workdir, timeout_s))
        return CommandOutcome(status="ok", code=0, stdout=b"from the host\n")


async def run(session: Session, workspace: Path, host: Machine | None = None, **args: Any) -> Result:
    return await Registry([shell_tool(session, str(workspace), host=host)]).call("shell", args)


async def test_output_errors_and_exit_code_are_told_in_this_order(session: Session, workspace: Path) -> None:
    result = await run(session, workspace, command="echo out; echo err >&2; exit 3")
    assert result.text == "out\n[stderr]\nerr\n[exit code 3]"
    assert result.value == {"status": "error", "code": 3, "stdout": "out\n", "stderr": "err\n"}
    fine = await run(session, workspace, command="true")
    assert (fine.text, fine.outcome, result.outcome) == ("(no output)", "ok", "error")


async def test_it_is_bash_with_pipes_and_arrays(session: Session, workspace: Path) -> None:
    command = 'a=(one two); printf "%s\\n" "${a[@]}" | sort -r; [[ x == x ]] && echo "$BASH" | grep -o bash'
    assert (await run(session, workspace, command=command)).text == "two\none\nbash"


async def test_the_folder_is_the_workspace_or_one_within(session: Session, workspace: Path) -> None:
    (workspace / "sub").mkdir(mode=0o777)
    assert (await run(session, workspace, command="pwd")).text == str(workspace)
    for folder in ("sub", "./sub/../sub", str(workspace / "sub")):
        assert (await run(session, workspace, command="pwd", workdir=folder)).text == str(workspace / "sub")


@pytest.mark.parametrize("folder", ["..", "/", "/etc", "sub/../../x", "a\0b"])
async def test_a_folder_outside_is_refused(session: Session, workspace: Path, folder: str) -> None:
    with pytest.raises(ToolFailed, match=r"outside the workspace|NUL"):
        await run(session, workspace, command="pwd", workdir=folder)


async def test_a_command_that_takes_too_long_is_ended_and_told_how_to_go_on(session: Session, workspace: Path) -> None:
    result = await run(session, workspace, command="echo begun; sleep 60", timeout_s=0.5)
    assert result.text.startswith("begun\n[not done after 0.5 s, and stopped; allow more with timeout_s, or end")


@pytest.mark.parametrize("args", [{"command": ""}, {"command": "x", "timeout_s": -1}, {"command": " & "}])
async def test_what_makes_no_sense_is_said(session: Session, workspace: Path, args: dict[str, Any]) -> None:
    with pytest.raises(ToolFailed, match=r"empty|more than 0|no command"):
        await run(session, workspace, **args)


async def test_what_ends_in_an_ampersand_goes_on_behind_and_can_be_looked_at_and_ended(
    session: Session, workspace: Path
) -> None:
    begun = await run(session, workspace, command="echo ready; tail -f /dev/null &")
    assert re.fullmatch(
        r"\[job 1, process \d+, runs in the background; log /tmp/jobs/1\.log\]\nready\n"
        r"\[to look: tail -n 20 /tmp/jobs/1\.log; to end it: kill -- -\d+\]",
        begun.text,
    ), begun.text
    pid = begun.value["pid"]
    assert begun.value["running"]
    # A cell comes and goes, and the job is still there.
    await session.run("x = 1")
    look = f"kill -0 -- -{pid} && tail -n 20 {begun.value['log']}"
    assert (await run(session, workspace, command=look)).text == "ready"
    ended = await run(
        session, workspace, command=f"kill -- -{pid}; while kill -0 -- -{pid}; do sleep 0.05; done 2>/dev/null"
    )
    assert "[exit code" not in ended.text or ended.value["code"] == 1
    again = await run(session, workspace, command=f"kill -0 -- -{pid}")
    assert again.value["code"] == 1, "it is gone"


async def test_a_job_that_ends_at_once_says_how(session: Session, workspace: Path) -> None:
    failed = await run(session, workspace, command="echo oops >&2; exit 7 &")
    assert re.fullmatch(r"\[job 1, process \d+, has ended; log \S+\]\noops\n\[exit code 7\]", failed.text), failed.text
    second = await run(session, workspace, command="no-such-program-at-all &")
    assert second.value["job"] == 2
    assert "[exit code 127]" in second.text
    fine = await run(session, workspace, command="true &")
    assert [job.outcome for job in (failed, second, fine)] == ["error", "error", "ok"]


async def test_two_ampersands_or_an_escaped_one_are_no_job(session: Session, workspace: Path) -> None:
    assert (await run(session, workspace, command="echo a \\&")).text == "a &"
    assert "job" not in (await run(session, workspace, command="true &&")).text


async def test_the_host_is_used_only_when_it_is_named_and_there(session: Session, workspace: Path) -> None:
    host = Machine()
    assert (await run(session, workspace, host, command="id")).text != "from the host"
    assert host.asked == []
    told = await run(session, workspace, host, command="id &", where="host", workdir="sub", timeout_s=5)
    assert told.text == "from the host"
    assert host.asked == [("id &", "sub", 5.0)]
    with pytest.raises(ToolFailed, match="no command can be run on the host"):
        await run(session, workspace, None, command="id", where="host")
    with pytest.raises(ToolFailed, match="'where' should be 'sandbox' or 'host'"):
        await run(session, workspace, host, command="id", where="Host")


@pytest.mark.parametrize(
    ("args", "reach"),
    [
        ({"command": "x"}, "workspace"),
        ({"command": "x", "where": "sandbox"}, "workspace"),
        ({"command": "x", "where": "host"}, "host"),
        ({"command": "x", "where": None}, "host"),
        ({"command": "x", "where": ["sandbox"]}, "host"),
    ],
)
def test_anything_but_the_sandbox_counts_as_the_host(args: Mapping[str, Any], reach: str) -> None:
    assert reach_of(args) == (reach, "")


async def test_it_reaches_what_the_sessions_code_reaches(session: Session, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    told = await run(session, workspace, command=f"cat {tmp_path}/outside; echo kept > mine")
    assert "No such file" in told.text
    assert "secret" not in told.text
    assert (workspace / "mine").read_text() == "kept\n"
