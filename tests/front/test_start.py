"""What a command loads before a model is first asked. Time cannot be held to a number here; what takes it can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.model.servers import said, serving

pytestmark = pytest.mark.integration

PROBE = """
import json, re, sys

def note(event, args):
    if event != "socket.connect" or not isinstance(args[1], tuple) or args[1][1] != int(sys.argv[1]):
        return
    modules = dict(sys.modules)
    ours = {name: module for name, module in modules.items() if name.partition(".")[0] == "pinfold"}
    made = [(name, value) for name, module in ours.items() for value in vars(module).values()]
    found = {
        "modules": sorted(modules),
        "ours": sorted(ours),
        "dataclasses": sorted(
            f"{name}.{one.__name__}" for name, one in made
            if isinstance(one, type) and one.__module__ == name and "__dataclass_fields__" in vars(one)
        ),
        "patterns": len({id(one) for _, one in made if isinstance(one, re.Pattern)}),
    }
    with open(sys.argv[2], "w") as file:
        json.dump(found, file)

sys.addaudithook(note)
from pinfold.front.cli.main import run_command_line
run_command_line(sys.argv[3:])
"""
NOT_YET = {
    "difflib",
    "genai_prices",
    "jsonschema",
    "logging.handlers",
    "mcp",
    "multiprocessing",
    "pinfold.app.clients.agent",
    "pinfold.app.storage.exports",
    "pinfold.memory",
    "pinfold.model.local",
    "pinfold.model.protocol.reply_parser",
    "pinfold.model.providers",
    "pinfold.model.wire.ollama",
    "pinfold.net",
    "pinfold.policy.lists",
    "pinfold.sandbox.providers.namespaces",
    "pinfold.sandbox.guards.protected_files",
    "prompt_toolkit",
    "pydantic",
    "rich",
    "tree_sitter",
    "unittest",
    "yaml",
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """At the moment the first connection to a model is opened."""
    folder = tmp_path_factory.mktemp("start")
    workspace, noted = folder / "workspace", folder / "noted.json"
    workspace.mkdir()
    own = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
    own["PINFOLD_SANDBOX_BUILD"] = "off"
    with serving(said("fine")) as server:
        command = ["run", "--workspace", str(workspace), "--model", f"{server.url}/v1#tiny", "hello"]
        for _ in range(2):  # the first one tells the user what only the first one tells
            done = subprocess.run(
                [sys.executable, "-c", PROBE, server.url.rpartition(":")[2], str(noted), *command],
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
                env={**os.environ, **own},
            )
            assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    return json.loads(noted.read_text(encoding="utf-8"))


def test_nothing_is_loaded_that_the_first_request_does_not_need(loaded: dict[str, Any]) -> None:
    assert NOT_YET & set(loaded["modules"]) == set()
    assert {"httpx2", "pinfold.model.wire.openai", "sqlite3"} <= set(loaded["modules"]), "the control"


def test_a_start_stays_within_its_budget(loaded: dict[str, Any]) -> None:
    """Whoever needs more of it loads something else later."""
    assert len(loaded["ours"]) <= 186
    assert loaded["dataclasses"] == [], "each takes a millisecond to make; a Struct takes none"
    assert loaded["patterns"] <= 22, "compile what is rarely used when it is used: re.search(TEXT, ...)"
