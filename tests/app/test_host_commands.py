"""A yes to a command for this machine is to what it runs: no process of the session changes that, and nothing is elided."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.app.test_session_tools import Asked, Script, agent_of, calls, seen, turn

from pinfold import Agent, Approval
from pinfold.app.session.action_policy import COMMAND, SHOWN
from pinfold.app.trust.named_files import describe_named_files, files_named
from pinfold.events import ActionDenied

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
# Left running by a cell: swaps both files for ever, each by a rename, and counts.
SWAPS = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", '''
import os
turn = 0
while True:
    turn += 1
    for name in ("run.sh", "part.sh"):
        with open(f"{name}.new", "w") as file:
            file.write(f"echo {name} {turn % 2}\\\\n" + (". ./part.sh\\\\n" if name == "run.sh" else ""))
        os.rename(f"{name}.new", name)
    with open("turns", "w") as file:
        file.write(str(turn))
'''], start_new_session=True)
while not os.path.exists("turns"): pass
"""


class Reader:
    """Says yes, and keeps what the user could see at that moment: also what no question names."""

    def __init__(self, workspace: Path, then: Callable[[], None] = lambda: None) -> None:
        self.workspace = workspace
        self.then = then
        self.shown: list[str] = []
        self.parts: list[str] = []

    async def __call__(self, approval: Approval) -> bool:
        self.shown.append(approval.shows)
        self.parts.append((self.workspace / "part.sh").read_text())
        self.then()
        return True


@pytest.mark.parametrize("sandbox", ["namespaces", "landlock"])
async def test_no_leftover_process_swaps_a_script_between_the_question_and_its_end(
    workspace: Path, script: Script, sandbox: str
) -> None:
    rounds = 6
    steps = [calls("shell", command=f"sh run.sh  # {number}", where="host") for number in range(rounds)]
    model = script(calls("python", code=SWAPS), *steps, {"text": "ok"})
    reader = Reader(workspace)
    async with Agent(
        model=model, workspace=workspace, sandbox=sandbox, mode="ask", approve=reader, ephemeral=True
    ) as agent:
        said = seen(await turn(agent))[1:]
        turns = (workspace / "turns").read_text()
        with anyio.fail_after(60):  # it is alive, and was only held up
            while (workspace / "turns").read_text() in ("", turns):
                await anyio.lowlevel.checkpoint()
    assert len(reader.shown) == len(said) == rounds
    for shown, part, ran in zip(reader.shown, reader.parts, said, strict=True):
        named, sourced = ran.splitlines()
        assert f"    echo {named}" in shown
        assert f"echo {sourced}\n" == part


async def test_a_command_that_a_cell_calls_for_runs_while_that_cell_stands_still(
    workspace: Path, script: Script
) -> None:
    (workspace / "part.sh").write_text("echo once")
    code = (
        "from _pinfold_guest.calls import call\n"
        "import itertools, os, threading\n"
        "def write():\n"
        "    for number in itertools.count():\n"
        "        with open('new', 'w') as file: file.write(f'echo {number}')\n"
        "        os.rename('new', 'part.sh')\n"
        "threading.Thread(target=write, daemon=True).start()\n"
        "print(call('shell', command='sh part.sh', where='host')['stdout'])"
    )
    reader = Reader(workspace)
    async with agent_of(
        workspace, script(calls("python", code=code), {"text": "ok"}), mode="ask", approve=reader
    ) as agent:
        said = seen(await turn(agent))[-1]
    assert reader.parts == [reader.parts[0]]
    assert said.splitlines()[0] == reader.parts[0].removeprefix("echo ")


@pytest.mark.parametrize("place", ["here", "link", "mount", "makefile", "source"])
async def test_a_file_that_is_another_by_now_is_shown_again_and_asked_about_again(
    workspace: Path, tmp_path: Path, script: Script, place: str
) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    (workspace / "part.sh").touch()
    target, command = {
        "here": (workspace / "do it.sh", "sh './do it.sh'"),
        "link": (workspace / "real.sh", "./link.sh"),
        "mount": (mount / "run.sh", f"bash {mount}/run.sh"),
        "makefile": (workspace / "sub" / "Makefile", "make -s -C sub"),
        "source": (workspace / "sub" / "lib.sh", "cd sub && true; . ./lib.sh"),
    }[place]
    target.parent.mkdir(exist_ok=True)
    body = "all:\n\techo {}\n" if place == "makefile" else "echo {}\n"
    target.write_text(body.format("first"))
    target.chmod(0o755)
    (workspace / "link.sh").symlink_to("real.sh")

    def swapped() -> None:
        target.write_text(body.format("second"))

    reader = Reader(workspace, swapped)
    model = script(calls("shell", command=command, where="host"), {"text": "ok"})
    async with agent_of(workspace, model, mode="ask", approve=reader, mounts=[f"{mount}:rw"]) as agent:
        said = seen(await turn(agent))
    assert ["echo first" in shown for shown in reader.shown] == [True, False]
    assert ["echo second" in shown for shown in reader.shown] == [False, True]
    assert "second" in said[0]


def test_only_what_the_agent_could_have_written_is_bound(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "users.sh").write_text("users own")
    (workspace / "out").symlink_to(tmp_path / "users.sh")
    (workspace / "binary").write_bytes(b"\0\1")
    (workspace / "long.py").write_text("#" * 20_000)
    (workspace / "tool").mkdir()
    (workspace / "tool" / "__main__.py").write_text("print(1)\nUses nothing: 1 bytes")
    (workspace / ".env").write_text("A_KEY=secret words")
    os.mkfifo(workspace / "pipe")
    command = f". .env; sh pipe; python3 long.py out binary {tmp_path}/users.sh; python3 -m tool /etc/hostname missing"
    files = files_named(command, workspace, [workspace])
    assert sorted(str(file.path.relative_to(workspace)) for file in files) == [
        ".env",
        "binary",
        "long.py",
        "out",
        "pipe",
        "tool/__main__.py",
    ]
    lines = list(describe_named_files(files, workspace))
    assert len([line for line in lines if line.startswith("Uses ")]) == 6
    assert any(line.endswith("read the file before you say yes") and "long.py" in line for line in lines)
    assert not any("users own" in line or "secret words" in line for line in lines)
    assert any(line.startswith("Uses pipe") and "its content is unknown" in line for line in lines)
    assert any(f"a link to {tmp_path / 'users.sh'}" in line for line in lines)


@pytest.mark.parametrize(
    ("tool", "args", "most"),
    [
        ("shell", {"command": "true @", "where": "host"}, COMMAND),
        ("shell", {"command": "touch @"}, COMMAND),
        ("write_file", {"path": "a.txt", "content": "@"}, SHOWN),
        ("install", {"package": "@"}, SHOWN),
    ],
    ids=["host", "sandbox", "edit", "tool"],
)
async def test_what_is_too_long_to_be_shown_whole_is_refused_and_nobody_is_asked(
    workspace: Path, script: Script, tool: str, args: dict[str, str], most: int
) -> None:
    def given(length: int) -> dict[str, Any]:
        return calls(tool, **{name: value.replace("@", "a" * length) for name, value in args.items()})

    asked = Asked(False)
    model = script(given(most - 500), given(most + 1), {"text": "ok"})
    async with agent_of(workspace, model, mode="ask", approve=asked) as agent:
        events = await turn(agent)
    [approval] = asked.approvals
    assert "a" * (most - 500) in approval.shows
    refused = [event.reason for event in events if isinstance(event, ActionDenied)]
    assert ["too long to show in full" in reason for reason in refused if "user" not in reason] == [True]
