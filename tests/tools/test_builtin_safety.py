"""The file tools reach exactly what the session's code can: nothing outside, no masked file, no protected one."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from pinfold.sandbox import Session, Spec, open_session
from pinfold.sandbox.guests import UnsafeLocal
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.tools import Registry, ToolFailed
from pinfold.tools.builtin.files import file_tools

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Asked: TypeAlias = tuple[str, Mapping[str, object]]
CANARY = "canary-5d1e"
MASKED = (".env", "deep/.env.local", "id_rsa", "deep/server.pem")
OBEYED = "what the agent obeys"
PROTECTED = ("AGENTS.md", "pinfold.toml", ".mcp.json", ".git/config", ".git/hooks/pre-commit")
NEW = ("CLAUDE.md", ".agents/skills/new/SKILL.md")
"""Not there yet, and not to be made."""


@pytest.fixture
def outside(tmp_path: Path, workspace: Path) -> Path:
    """A workspace with everything in it that must stay out of reach, and a secret beside it."""
    secret = tmp_path / "outside.txt"
    secret.write_text(f"{CANARY}\n")
    for name in (*MASKED, *PROTECTED):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(f"{CANARY if name in MASKED else OBEYED}\n")
    (workspace / "plain.txt").write_text("plain\n")
    (workspace / "link.txt").symlink_to(secret)
    (workspace / "linked").symlink_to(tmp_path)
    tmp_path.chmod(0o755)
    return secret


@pytest.fixture
async def session(outside: Path, workspace: Path) -> AsyncGenerator[Session]:
    async with open_session(workspace, Namespaces()) as session:
        yield session


async def said(session: Session, name: str, args: Mapping[str, object]) -> str:
    try:
        return (await Registry(file_tools(session)).call(name, args)).text
    except ToolFailed as failure:
        return f"failed: {failure}"


def content(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def reads(outside: Path) -> list[Asked]:
    ways = [*MASKED, str(outside), "../outside.txt", "link.txt", "linked/outside.txt", "./deep/../../outside.txt"]
    ways += ["/proc/self/root" + str(outside), "/proc/1/root" + str(outside)]
    asked: list[Asked] = [("read_file", {"path": way}) for way in ways]
    asked += [("data_view", {"path": way}) for way in ways[:6]]
    asked += [("edit_file", {"path": way, "old": CANARY[:3], "new": "x"}) for way in ways]
    asked += [("grep", {"pattern": "can", "path": where}) for where in (".", "..", "linked", "/", str(outside))]
    asked += [("glob", {"pattern": pattern}) for pattern in ("../*", f"{outside.parent}/*", "linked/*")]
    patch = f"*** Begin Patch\n*** Update File: {outside}\n@@\n-lost\n+x\n*** End Patch"
    return [
        *asked,
        ("apply_patch", {"patch": patch}),
        ("list_files", {"path": ".."}),
        ("list_files", {"path": "linked"}),
    ]


async def test_nothing_outside_and_nothing_masked_is_told_by_any_tool(session: Session, outside: Path) -> None:
    asked = reads(outside)
    for name, args in asked:
        told = await said(session, name, args)
        assert CANARY not in told, (name, args)
        assert "outside.txt" not in told.replace(str(args), "") or told.startswith("failed"), (name, args, told)
    assert len(asked) > 35
    assert await said(session, "read_file", {"path": "plain.txt"}) == "plain\n"


async def test_the_same_questions_find_the_secret_where_nothing_holds_them(workspace: Path, outside: Path) -> None:
    """Without a sandbox each way in is open: the test above would see it."""
    session = await UnsafeLocal().open(Spec(workspace=workspace))
    try:
        asked = [(name, args) for name, args in reads(outside) if name != "edit_file" and args.get("path") != "/"]
        told = [await said(session, name, args) for name, args in asked]  # not all of the machine
    finally:
        await session.close()
    assert sum(CANARY in one or "outside.txt" in one for one in told) > 15


async def test_no_tool_changes_what_is_protected_or_outside(session: Session, workspace: Path, outside: Path) -> None:
    tried = 0
    ways = [*PROTECTED, *NEW, str(outside), "../outside.txt"]
    for way in ways:
        before = content(workspace / way)
        made = f"*** Begin Patch\n*** Add File: {way}\n+x\n*** End Patch"
        old = CANARY if "outside" in way else OBEYED
        changed = f"*** Begin Patch\n*** Update File: {way}\n@@\n-{old}\n+x\n*** End Patch"
        gone = f"*** Begin Patch\n*** Delete File: {way}\n*** End Patch"
        for name, args in (
            ("write_file", {"path": way, "content": "x"}),
            ("edit_file", {"path": way, "old": old, "new": "x"}),
            *(("apply_patch", {"patch": patch}) for patch in (made, changed, gone)),
        ):
            await said(session, name, args)
            tried += 1
            assert content(workspace / way) == before, (name, args)
    assert tried == len(ways) * 5
    assert content(outside) == f"{CANARY}\n"


async def test_a_protected_file_is_refused_by_name_and_a_plain_one_is_written(
    session: Session, workspace: Path
) -> None:
    edit = {"path": "AGENTS.md", "old": OBEYED, "new": "x"}
    assert "AGENTS.md is protected or read-only" in await said(session, "edit_file", edit)
    assert "was made and has been removed" in await said(session, "write_file", {"path": "CLAUDE.md", "content": "x"})
    assert await said(session, "edit_file", {"path": "plain.txt", "old": "plain", "new": "x"})
    assert content(workspace / "plain.txt") == "x\n"


async def test_a_workspace_that_may_not_be_changed_is_not(workspace: Path, outside: Path) -> None:
    session = await Namespaces().open(Spec(workspace=workspace, writable=False))
    try:
        told = await said(session, "write_file", {"path": "plain.txt", "content": "x"})
        assert "plain.txt is protected or read-only" in told
        assert "read-only" in await said(session, "write_file", {"path": "new/a", "content": "x"})
        assert await said(session, "read_file", {"path": "plain.txt"}) == "plain\n"
    finally:
        await session.close()
    assert content(workspace / "plain.txt") == "plain\n"
