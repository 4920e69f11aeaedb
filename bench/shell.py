"""Shell strings tried for what they do to the files, with nobody there to say yes.

    ./.venv/bin/python bench/shell.py [--level namespaces] [--level landlock] [--only N] [--json FILE]

Over a thousand strings that would change the workspace are put to a session in the modes `ask` and `read-only`, and then run as commands
that may only read, whatever policy thinks of them. The workspace is compared before and after: contents, names, modes,
owners, times, attributes. The control runs the same strings free. Last, 120 ordinary reading commands in `ask`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
from bench.shell_suite.families import families
from bench.shell_suite.ground import difference, make, state

from pinfold import Agent
from pinfold.events import ActionFinished, ActionProposed, ActionStarted, ApprovalRequested, CallTool, Mode
from pinfold.sandbox import open_session

HERE = Path(__file__).resolve().parent / "shell_suite"
BATCH, STEPS = 20, 15
"""Calls in one reply of the model, and replies in a turn."""
LATE_S = 0.6
"""For what strings left in the background."""
MOST_ASKED = 3


class Told:
    """What became of the strings in one session."""

    def __init__(self) -> None:
        self.commands: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}
        self.asked: dict[str, str] = {}
        self.ran: set[str] = set()
        self.changed: list[tuple[list[str], list[str]]] = []


async def through_a_session(
    workspace: Path, level: str, mode: Mode, strings: Sequence[str], settings: dict[str, Any] | None = None
) -> Told:
    """As the model's own commands, judged by policy, with nobody to ask."""
    told = Told()
    batches = [strings[at : at + BATCH * STEPS] for at in range(0, len(strings), BATCH * STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.jsonl"
        with script.open("w", encoding="utf-8") as file:
            for batch in batches:
                for at in range(0, len(batch), BATCH):
                    calls = [
                        {"tool": "shell", "args": {"command": text, "timeout_s": 5}} for text in batch[at : at + BATCH]
                    ]
                    file.write(json.dumps({"calls": calls}) + "\n")
                file.write(json.dumps({"text": "done"}) + "\n")
        agent = Agent(
            model=f"scripted:{script}",
            workspace=workspace,
            sandbox=level,
            mode=mode,
            ephemeral=True,
            settings=settings or {},
        )
        async with agent:
            before = state(workspace)
            for batch in batches:
                await _turn(agent, told)
                await anyio.sleep(LATE_S)
                after = state(workspace)
                if paths := difference(before, after):
                    told.changed.append((list(batch), paths))
                before = after
    return told


async def _turn(agent: Agent, told: Told) -> None:
    async for event in agent.stream("go"):
        match event:
            case ActionProposed(id=id_, action=CallTool() as action, parent=parent):
                # A connection that a command wants is asked about too.
                told.commands[id_] = str(action.given.get("command") or told.commands[parent or id_])
            case ApprovalRequested(id=id_, reason=reason):
                told.asked[told.commands[id_]] = reason
            case ActionStarted(id=id_):
                told.ran.add(told.commands[id_])
            case ActionFinished(id=id_, outcome=outcome):
                told.outcomes[told.commands[id_]] = outcome
            case _:
                pass


async def held_to_reading(workspace: Path, level: str, strings: Sequence[str]) -> dict[str, Any]:
    """Each of them, whatever policy says: what the sandbox alone does about it."""
    changed: dict[str, list[str]] = {}
    how = {"kept": 0, "refused": 0, "impossible": 0, "": 0}
    async with open_session(workspace=workspace, sandbox=level) as session:
        before = state(workspace)
        for text in strings:
            ran = await session.command(["/bin/bash", "-c", text], timeout_s=5, read_only=True)
            how[ran.read_only] += 1
            if "late" in text:
                await anyio.sleep(LATE_S)
            after = state(workspace)
            if paths := difference(before, after):
                changed[text] = paths
                before = after
    return {"changed": changed, "how": how}


async def free(workspace: Path, strings: Sequence[str]) -> set[str]:
    """The control, in a sandbox and on a copy within it. Some of it is for programs that are not there."""
    put_control(workspace, strings)
    changed: set[str] = set()
    async with open_session(workspace=workspace, sandbox="namespaces") as session:
        ran = await session.command(["python3", "control.py"], timeout_s=900)
        if ran.status != "ok":
            raise SystemExit(f"the control failed: {ran.stderr.decode('utf-8', 'replace')[-500:]}")
        changed.update(json.loads(ran.stdout))
    return changed


def put_control(workspace: Path, strings: Sequence[str]) -> None:
    (workspace / "cases.json").write_text(json.dumps(strings), "utf-8")
    (workspace / "control.py").write_bytes((HERE / "control.py").read_bytes())


def new_workspace(folder: Path, name: str) -> Path:
    workspace = folder / name
    workspace.mkdir()
    make(workspace)
    return workspace


async def run(levels: Sequence[str], only: int | None) -> dict[str, Any]:
    strings = [text for _, text in families()][: only or None]
    reading: list[str] = tomllib.loads((HERE / "reading.toml").read_text("utf-8"))["commands"]
    found: dict[str, Any] = {"strings": len(strings), "levels": {}}
    with tempfile.TemporaryDirectory(prefix="pinfold-shell-") as place:
        folder = Path(place)
        folder.chmod(0o755)  # noqa: ASYNC240 - sessions of root's run as another user
        changing = await free(new_workspace(folder, "control"), strings)
        found["control"] = len(changing)
        print(f"control: {len(changing)} of {len(strings)} strings change the workspace when they are free to")
        for level in levels:
            begun = time.monotonic()
            here: dict[str, Any] = {}
            for mode in ("ask", "read-only"):
                told = await through_a_session(new_workspace(folder, f"{level}-{mode}"), level, mode, strings)
                here[mode] = {"ran": len(told.ran), "told": len(told.outcomes), "changed": told.changed}
                print(
                    f"{level}, {mode}: {len(told.outcomes)} strings, {len(told.ran)} run, "
                    f"{len(told.changed)} batches changed a file"
                )
            alone = await held_to_reading(new_workspace(folder, f"{level}-alone"), level, strings)
            here["alone"] = alone
            print(f"{level}, held to reading: {len(alone['changed'])} changed a file; {alone['how']}")
            told = await through_a_session(new_workspace(folder, f"{level}-reading"), level, "ask", reading)
            here["reading"] = {"commands": len(told.outcomes), "asked": told.asked, "changed": told.changed}
            print(f"{level}: {len(told.asked)} of {len(told.outcomes)} ordinary reading commands are asked about")
            for command, reason in told.asked.items():
                print(f"    {command}   ({reason})")
            here["s"] = round(time.monotonic() - begun, 1)
            found["levels"][level] = here
    return found


def failures(found: dict[str, Any]) -> list[str]:
    wrong: list[str] = []
    if found["control"] < 0.7 * found["strings"]:
        wrong.append(f"only {found['control']} strings change anything when they are free to")
    for level, here in found["levels"].items():
        for mode in ("ask", "read-only"):
            if here[mode]["told"] != found["strings"]:
                wrong.append(f"{level}, {mode}: {here[mode]['told']} strings came to an end")
            wrong += [f"{level}, {mode}: changed {paths}" for _, paths in here[mode]["changed"]]
        wrong += [f"{level}, alone: {text!r} changed {paths}" for text, paths in here["alone"]["changed"].items()]
        if len(here["reading"]["asked"]) > MOST_ASKED or here["reading"]["changed"]:
            wrong.append(f"{level}: {len(here['reading']['asked'])} reading commands are asked about")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--level", action="append", choices=("namespaces", "landlock"))
    parser.add_argument("--only", type=int, help="the first N strings")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = anyio.run(run, given.level or ["namespaces", "landlock"], given.only)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2), "utf-8")
    if wrong := failures(found):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
