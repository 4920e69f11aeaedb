"""The protocol's inspector on the command line: whether it finds our tools in order, and what a call of it gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.conformance_suite.subjects import ROOT
from bench.conformance_suite.suite import Leg, Node, Ran

PACKAGE, VERSION = "@modelcontextprotocol/inspector", "latest"
CALLS = {
    "strict tools/list": ("--strict", "--method", "tools/list"),
    "run_python": ("--method", "tools/call", "--tool-name", "run_python", "--tool-arg", "code=6*7"),
    "variables": ("--method", "tools/call", "--tool-name", "variables"),
}


def inspected(node: Node, scratch: Path) -> Leg:
    folder = node.installed(scratch, PACKAGE, VERSION)
    version = json.loads((folder / "package.json").read_text("utf-8"))["version"]
    program = folder.parents[1] / ".bin" / "mcp-inspector"
    found: dict[str, Ran] = {}
    for name, args in CALLS.items():
        with tempfile.TemporaryDirectory() as home:
            folders = {f"XDG_{one}_HOME": f"{home}/{one}" for one in ("CONFIG", "DATA", "STATE")}
            Path(home, "workspace").mkdir()
            ours = (sys.executable, "-m", "pinfold", "mcp-server", "--workspace", f"{home}/workspace", "--ephemeral")
            done = subprocess.run(
                [node.program, str(program), "--cli", *ours, *args],
                env={**node.environment, **folders, "PYTHONPATH": str(ROOT / "src"), "HOME": os.environ["HOME"]},
                capture_output=True,
                timeout=120,
                check=False,
            )
        found[name] = _ran(name, done)
    return Leg("inspector", version, "stdio", found)


def _ran(name: str, done: subprocess.CompletedProcess[bytes]) -> Ran:
    answer: dict[str, Any]
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    holds = done.returncode == 0 and (bool(answer.get("tools")) or answer.get("isError") is False)
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return Ran(name, int(holds), () if holds else (f"exit {done.returncode}: {words[-1] if words else ''}",), 1)
