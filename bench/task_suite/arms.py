"""The agents that are compared, each as its users run it, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.task_suite import baseline

ArmName = Literal["pinfold", "smolagents", "smolagents-kinder"]
ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "PINFOLD_SANDBOX_PYTHON")
"""Variables an agent gets; no keys, and nobody's configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    prompt: str
    workspace: Path
    url: str
    model: str
    expired: Callable[[], bool]
    checkout: Path = ROOT
    """Whose Pinfold is asked."""
    window: int | None = None
    """The context that Pinfold may fill."""
    scratch: Path
    """A folder for what the agent itself keeps; empty at the start of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    answer: str
    actions: int
    ended: Literal["done", "failed", "limit"]
    note: str = ""


def pinfold(asked: Asked) -> Attempt:
    command = [sys.executable, "-m", "pinfold", "run", "--json", "--mode", "auto", "--ephemeral"]
    command += ["--model", f"{asked.url}#{asked.model}", "--workspace", str(asked.workspace), asked.prompt]
    homes = {f"XDG_{kind}_HOME": str(asked.scratch / kind.lower()) for kind in ("CONFIG", "CACHE", "STATE")}
    window = {"PINFOLD_MODEL_CONTEXT": str(asked.window)} if asked.window else {}
    ended, out, err = _run(command, asked, {**homes, **window, "PYTHONPATH": str(asked.checkout / "src")})
    events = _events(out)
    last = next((event for event in reversed(events) if event.get("kind") == "TurnEnded"), None)
    return Attempt(
        answer=str(last.get("text") or "") if last else "",
        actions=sum(event.get("kind") == "ActionStarted" for event in events),
        ended=ended if ended == "limit" or last else "failed",
        note="" if last else (out[-1500:] + err[-1500:]),
    )


def _events(out: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for line in out.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue  # cut by the limit
    return events


def smolagents(asked: Asked, *settings: str) -> Attempt:
    result = asked.scratch / "answer.json"
    result.unlink(missing_ok=True)
    script = Path(__file__).with_name("smol.py")
    command = [str(baseline.make()), str(script), asked.url, asked.model, asked.prompt, str(result), *settings]
    ended, out, err = _run(command, asked, {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg"})
    if not result.exists():
        return Attempt(answer="", actions=0, ended="limit" if ended == "limit" else "failed", note=(out + err)[-3000:])
    told = json.loads(result.read_text(encoding="utf-8"))
    return Attempt(answer=told["answer"], actions=told["actions"], ended=ended, note=told["state"])


def smolagents_kinder(asked: Asked) -> Attempt:
    """Fences as small models know them, and an end before they go round in circles."""
    return smolagents(asked, json.dumps({"code_block_tags": "markdown", "max_steps": 8}))


ARMS: dict[ArmName, Callable[[Asked], Attempt]] = {
    "pinfold": pinfold,
    "smolagents": smolagents,
    "smolagents-kinder": smolagents_kinder,
}


def _run(
    command: list[str], asked: Asked, extra: dict[str, str]
) -> tuple[Literal["done", "failed", "limit"], str, str]:
    """With all it starts in one process group, so that the limit ends all of it."""
    environment = {key: os.environ[key] for key in KEPT if key in os.environ} | extra
    asked.scratch.mkdir(parents=True, exist_ok=True)
    out, err = asked.scratch / "stdout", asked.scratch / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        child = subprocess.Popen(
            command,
            cwd=asked.workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        ended: Literal["done", "failed", "limit"] = "done"
        try:
            while child.poll() is None:
                if asked.expired():
                    ended = "limit"
                    break
                time.sleep(0.1)
        finally:
            _end(child)
    if ended == "done" and child.returncode != 0:
        ended = "failed"
    return (ended, out.read_text(encoding="utf-8", errors="replace"), err.read_text(encoding="utf-8", errors="replace"))


def _end(child: subprocess.Popen[bytes]) -> None:
    """First as a user's Ctrl-C would."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(10)
