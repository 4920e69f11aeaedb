"""What policy calls reading, really run: in a sandbox, by real shells, with a look at the files before and after."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pinfold.policy import explain, read_script
from pinfold.sandbox import open_session

pytestmark = [pytest.mark.integration, pytest.mark.safety]

HERE = Path(__file__).parent
STRINGS: dict[str, Any] = tomllib.loads((HERE / "shell_strings.toml").read_text("utf-8"))
EVERYDAY: dict[str, Any] = tomllib.loads((HERE / "everyday.toml").read_text("utf-8"))
READING = [
    *(text for group in STRINGS["group"] if group["kind"] == "reads" for text in group["strings"]),
    *(text for source in EVERYDAY["source"] for text in source["reads"] if read_script(text).reads_only),
]
WRITING = [text for group in STRINGS["group"] if group["kind"] == "writes" for text in group["strings"]]


def prepare(workspace: Path, cases: list[str]) -> None:
    workspace.chmod(0o755)
    (workspace / "cases.json").write_text(json.dumps(cases), "utf-8")
    shutil.copy(HERE / "changes.py", workspace / "changes.py")


async def run_all(workspace: Path, cases: list[str]) -> dict[str, Any]:
    """Never outside a sandbox: half of these are hostile."""
    prepare(workspace, cases)
    async with open_session(workspace=workspace) as session:
        ended = await session.command(["python3", "changes.py"], timeout_s=90)
        assert ended.status == "ok", ended.stderr
        return json.loads(await session.get("changed.json"))


@pytest.mark.anyio
async def test_what_is_said_to_only_read_changes_no_file(workspace: Path) -> None:
    # A tail that follows, or npm's log of its own, would only cost time.
    cases = [text for text in READING if "npm" not in text]
    told = await run_all(workspace, cases)
    print(f"{told['ran']} commands run by bash and sh, {len(told['changed'])} changed a file")
    assert told["ran"] >= 350
    assert told["changed"] == []


@pytest.mark.anyio
async def test_many_of_those_it_asks_about_do_change_files(workspace: Path) -> None:
    """The control: files are watched where these commands write, and they are the ones policy asks about."""
    cases = [text for text in WRITING if any(word in text for word in ("rm x", "touch", "> f", ">f", "tee"))]
    told = await run_all(workspace, cases)
    print(f"{told['ran']} commands run by bash and sh, {len(told['changed'])} changed a file")
    assert len(told["changed"]) >= 80
    assert [text for text in told["changed"] if explain(text)["verdict"] == "allow"] == []
