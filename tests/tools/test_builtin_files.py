"""The file tools in a real session: what the model gets, what becomes of the files, what an approval can show."""

from __future__ import annotations

import sys
import venv
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pinfold.sandbox import Session, open_session
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.tools import BadCall, Registry, ToolFailed
from pinfold.tools.builtin.files import FileTools, Measured, file_tools, measure, preview

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
APP = "def main():\n    return 1\n"


@pytest.fixture
async def session(workspace: Path) -> AsyncGenerator[Session]:
    (workspace / "src").mkdir()
    (workspace / "src" / "app.py").write_text(APP)
    async with open_session(workspace, Namespaces()) as session:
        yield session


@pytest.fixture
def registry(session: Session) -> Registry:
    return Registry(file_tools(session, {"abc": b"one\ntwo\nthree\n", "long": b"x" * 50_000}.get))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


async def failure(registry: Registry, name: str, **args: object) -> str:
    with pytest.raises(ToolFailed) as failed:
        await registry.call(name, args)
    assert not failed.value.at_fault
    return str(failed.value)


async def test_a_file_is_written_read_changed_and_found(registry: Registry, workspace: Path) -> None:

    async def call(name: str, args: dict[str, object]) -> str:
        return (await registry.call(name, args)).text

    assert await call("write_file", {"path": "notes/a.txt", "content": "one\ntwo\n"}) == (
        "wrote notes/a.txt: 8 bytes, 2 lines"
    )
    assert await call("read_file", {"path": "notes/a.txt"}) == "one\ntwo\n"
    assert await call("edit_file", {"path": "notes/a.txt", "old": "two", "new": "2"}) == (
        "--- notes/a.txt\n+++ notes/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    )
    assert await call("apply_patch", {"patch": "--- a/notes/a.txt\n+++ b/notes/a.txt\n@@ -1 +1 @@\n-one\n+1\n"}) == (
        "changed notes/a.txt (+1 -1)"
    )
    assert (workspace / "notes/a.txt").read_text() == "1\n2\n"
    assert await call("list_files", {}) == "notes/\nsrc/"
    assert await call("list_files", {"path": "notes"}) == "a.txt  4"
    assert await call("glob", {"pattern": "**/*.*"}) == "notes/a.txt\nsrc/app.py"
    assert await call("grep", {"pattern": "return"}) == "src/app.py:2:    return 1"
    assert await call("grep", {"pattern": "return", "output_mode": "count"}) == "src/app.py:1"


async def test_what_cannot_be_done_is_said_so_that_it_can_be_mended(registry: Registry) -> None:
    said = [
        await failure(registry, "read_file", path="src/ap.py"),
        await failure(registry, "read_file", path="src"),
        await failure(registry, "read_file", path="src/app.py", start_line=9),
        await failure(registry, "read_file", path="src/app.py", start_line=0),
        await failure(registry, "edit_file", path="src/app.py", old="return 2", new="x"),
        await failure(registry, "edit_file", path="src/app.py", old="n", new="x"),
        await failure(registry, "grep", pattern="("),
        await failure(registry, "grep", pattern="a", output_mode="words"),
        await failure(registry, "data_view", path="src/app.pu", view="peek"),
    ]
    assert said == snapshot(
        [
            "read_file failed: there is no src/ap.py; did you mean src/app.py?",
            "read_file failed: src is a folder; list_files shows what is in it",
            "read_file failed: src/app.py has 2 lines; start_line=9 is past the end",
            "read_file failed: start_line counts from 1",
            "edit_file failed: old is not in src/app.py; the nearest is line 2:\n2:     return 1",
            "edit_file failed: old is 2 times in src/app.py, not 1: at lines 1, 2; give more of the text around it, or expected_matches=2 to change all",
            "grep failed: '(' is not a regular expression: missing ), unterminated subpattern at character 0; put a backslash before characters meant literally",
            "wrong arguments for grep: 'output_mode' should be 'lines', 'files' or 'count', not \"words\"",
            "data_view failed: there is no src/app.pu; did you mean src/app.py?",
        ]
    )


async def test_a_python_without_duckdb_says_how_to_have_one(workspace: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    (workspace / "a.csv").write_text("a\n1\n")
    async with open_session(workspace, Namespaces(tmp_path / "bare" / "bin" / "python")) as session:
        registry = Registry(file_tools(session))
        assert "data_view needs duckdb" in await failure(registry, "data_view", path="a.csv")


async def test_a_result_that_was_cut_is_opened_again(registry: Registry) -> None:

    async def call(name: str, args: dict[str, object]) -> str:
        return (await registry.call(name, args)).text

    assert await call("read_file", {"path": "blob:abc"}) == "one\ntwo\nthree\n"
    assert await call("read_file", {"path": "blob:abc", "start_line": 2, "max_lines": 1}) == (
        "two\n[lines 2 to 2 of 3; go on with start_line=3]"
    )
    assert len(await call("read_file", {"path": "blob:long"})) < 11_000
    assert "nothing is kept as 'lost'" in await failure(registry, "read_file", path="blob:lost")
    assert "past the end" in await failure(registry, "read_file", path="blob:abc", start_line=4)


async def test_an_approval_sees_the_diff_before_anything_is_written(session: Session, workspace: Path) -> None:
    patch = "*** Begin Patch\n*** Update File: src/app.py\n@@\n-    return 1\n+    return 3\n*** End Patch"
    assert await preview(session, "write_file", {"path": "src/app.py", "content": "x\n"}) == (
        "--- src/app.py\n+++ src/app.py\n@@ -1,2 +1 @@\n-def main():\n-    return 1\n+x\n"
    )
    assert await preview(session, "write_file", {"path": "new.txt", "content": "x\n"}) == (
        "--- /dev/null\n+++ new.txt\n@@ -0,0 +1 @@\n+x\n"
    )
    edit = {"path": "src/app.py", "old": "1", "new": "2"}
    assert await preview(session, "edit_file", edit) == (
        "--- src/app.py\n+++ src/app.py\n@@ -1,2 +1,2 @@\n def main():\n-    return 1\n+    return 2\n"
    )
    assert "+    return 3" in await preview(session, "apply_patch", {"patch": patch})
    assert await preview(session, "read_file", {"path": "src/app.py"}) == ""
    with pytest.raises(BadCall, match="old is not in"):
        await preview(session, "edit_file", {**edit, "old": "lost"})
    assert names(workspace) == ["app.py", "src"]
    assert (workspace / "src/app.py").read_text() == APP


async def test_a_preview_is_what_the_call_then_does(session: Session, registry: Registry) -> None:
    args = {"path": "src/app.py", "old": "main", "new": "start"}
    shown = await preview(session, "edit_file", args)
    assert (await registry.call("edit_file", args)).text == shown


async def test_a_deletion_is_measured_before_it_happens(session: Session, workspace: Path) -> None:
    (workspace / "src" / "data.bin").write_bytes(b"x" * 1000)
    assert await measure(session, ["src", "*.nothing"]) == Measured(files=2, bytes=1000 + len(APP))


async def test_a_folder_is_told_as_data(session: Session) -> None:
    assert await FileTools(session).list_directory(".") == {
        "entries": [{"name": "src", "type": "directory", "size": 0}]
    }


async def test_a_name_that_is_not_utf8_is_told_and_can_be_used(registry: Registry, workspace: Path) -> None:
    (workspace / "src" / "caf\udce9.txt").write_text("x\n")
    assert (await registry.call("glob", {"pattern": "src/*.txt"})).text == "src/caf\udce9.txt"
    assert (await registry.call("read_file", {"path": "src/caf\udce9.txt"})).text == "x\n"


async def test_only_tools_that_write_have_effects(session: Session) -> None:
    for tool in file_tools(session):
        assert (tool.effect == "once") == (tool.name in ("write_file", "edit_file", "apply_patch"))
        assert not tool.parallel_safe
