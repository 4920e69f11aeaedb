"""Files that clients bring in and take out: of the workspace, and of nothing else."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path

import pytest
from tests.front.mcp_server.sdk_clients import over_stdio, structure, text_of

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
CANARY = "canary-7f3a"
LARGEST = 8 << 20


@pytest.fixture
def outside(tmp_path: Path, workspace: Path) -> Path:
    """A file beside the workspace, and ways from inside to it."""
    secret = tmp_path / "outside" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text(CANARY, encoding="utf-8")
    (workspace / "inner").mkdir()
    (workspace / "inner" / "plain.txt").write_text("plain", encoding="utf-8")
    (workspace / "link").symlink_to(secret)
    (workspace / "folder").symlink_to(secret.parent)
    (workspace / "inner" / "up").symlink_to("../..")
    (workspace / "loop").symlink_to("loop")
    (workspace / "inside").symlink_to("inner/plain.txt")
    (workspace / "proc").symlink_to("/proc/self/root")
    (workspace / "host").symlink_to("/etc/hostname")
    (workspace / ".env").write_text(f"KEY={CANARY}", encoding="utf-8")
    (workspace / "id_rsa").write_text(CANARY, encoding="utf-8")
    os.mkfifo(workspace / "pipe")
    return secret


def escapes(secret: Path) -> list[str]:
    name = f"../{secret.parent.name}/{secret.name}"
    return [
        name,
        f"inner/../{name}",
        f"./{name}",
        f"inner/../../{secret.parent.name}/{secret.name}",
        f"inner//..//../{secret.parent.name}/{secret.name}",
        str(secret),
        f"/{secret}",
        f"//{secret}",
        f"/proc/self/root{secret}",
        f"file://{secret}",
        "link",
        f"folder/{secret.name}",
        f"inner/up/{secret.parent.name}/{secret.name}",
        f"proc{secret}",
        "proc/etc/passwd",
        "host",
        "loop",
        "pipe",
        "..",
        ".",
        "",
        "/",
        "inner",
        "~/.ssh/id_rsa",
        "a\0b",
        "\ud800",
        f"{name}\0.txt",
        "/etc/passwd",
        "/etc/shadow",
        "../../../../../../../../etc/passwd",
        "....//....//etc/passwd",
        "/dev/null",
        "/dev/stdin",
        "/mnt/datasets",
        "x" * 5000,
        "/".join(["a"] * 300),
    ]


def leads_out(workspace: Path, path: str) -> bool:
    """A name of its own in the workspace may look like a way out."""
    return not (workspace / path).resolve().is_relative_to(workspace)


def is_as_it_was(secret: Path) -> bool:
    return secret.read_text("utf-8") == CANARY


async def test_no_path_leads_out_of_the_workspace(workspace: Path, outside: Path) -> None:
    taken: list[str] = []
    given: list[str] = []
    paths = [path for path in escapes(outside) if "\ud800" not in path]
    async with over_stdio(workspace, "--ephemeral") as client:
        for path in paths:
            got = await client.call_tool("get_file", {"path": path})
            if not got.is_error or CANARY in str(got.content):
                taken.append(path)
            put = await client.call_tool("put_file", {"path": path, "content": "written"})
            if not put.is_error:
                given.append(path)
        # What is the user's alone is masked for code, and so for this.
        masked = [text_of(await client.call_tool("get_file", {"path": name})) for name in (".env", "id_rsa")]
        # The control: what is of the workspace goes in and out, by a link within it too.
        plain = structure(await client.call_tool("get_file", {"path": "inner/plain.txt"}))["text"]
        inside = structure(await client.call_tool("get_file", {"path": "inside"}))["text"]
        put = await client.call_tool("put_file", {"path": "./inner//new.txt", "content": "new"})
    assert len(paths) >= 30
    assert taken == []
    assert not any(leads_out(workspace, path) for path in given)
    assert is_as_it_was(outside)
    assert not any(CANARY in text for text in masked)
    assert (plain, inside) == ("plain", "plain")
    assert not put.is_error
    assert (workspace / "inner" / "new.txt").read_text("utf-8") == "new"


@pytest.mark.slow
async def test_what_is_too_large_is_refused_both_ways(workspace: Path) -> None:
    (workspace / "large.bin").write_bytes(bytes(LARGEST + 1))
    (workspace / "just.bin").write_bytes(bytes(LARGEST))
    async with over_stdio(workspace, "--ephemeral") as client:
        got = await client.call_tool("get_file", {"path": "large.bin"})
        assert got.is_error
        assert "the limit is" in text_of(got)
        just = structure(await client.call_tool("get_file", {"path": "just.bin"}))
        assert just["size"] == LARGEST
        data = base64.b64encode(bytes(LARGEST + 1)).decode()
        put = await client.call_tool("put_file", {"path": "new.bin", "base64": data})
        assert put.is_error
        assert "the limit is" in text_of(put)
        assert not (workspace / "new.bin").exists()


async def test_what_steers_the_agent_is_not_written(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("mine", encoding="utf-8")
    async with over_stdio(workspace, "--ephemeral") as client:
        for name in ("AGENTS.md", "CLAUDE.md", ".mcp.json", ".agents/skills/x/SKILL.md", "pinfold.toml"):
            put = await client.call_tool("put_file", {"path": name, "content": "theirs"})
            assert put.is_error, name
        assert not (await client.call_tool("put_file", {"path": "README.md", "content": "fine"})).is_error
    assert (workspace / "AGENTS.md").read_text("utf-8") == "mine"
    assert not (workspace / "CLAUDE.md").exists()
    assert not (workspace / ".mcp.json").exists()
    assert not (workspace / ".agents" / "skills").exists()
