"""Turns in an editor: what is said, done, asked and stopped."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import acp.schema as wire
import anyio
import pytest
from tests.front.acp.editor import Editor, RequestError, call, editing

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def texts(shown: dict[str, Any]) -> list[str]:
    return [one["content"]["text"] for one in shown["content"] if one["type"] == "content" and "text" in one["content"]]


async def test_a_cell_is_a_tool_call_with_its_code_output_and_changes(workspace: Path) -> None:
    code = "print('hello ``` world')\nopen('a.txt', 'w').write('one\\n')\n6 * 7"
    async with editing(workspace, [call("python", "Let me see.", code=code), {"text": "It is **42**."}]) as editor:
        assert await editor.prompt("What is 6 * 7?") == "end_turn"
    (shown,) = editor.calls()
    assert (shown["kind"], shown["status"], shown["rawInput"]) == ("execute", "completed", {"code": code})
    ran, output = texts(shown)
    assert ran == f"````python\n{code}\n````"  # a longer fence than any in it
    assert output == "````\nhello ``` world\n42\n````"
    place = str(workspace / "a.txt")
    assert shown["content"][2] == {"type": "diff", "path": place, "oldText": None, "newText": "one\n"}
    assert shown["locations"] == [{"path": place}]
    assert "Let me see." in editor.text
    assert editor.text.endswith("It is **42**.")
    assert not editor.of("user_message_chunk")  # the editor shows it already
    assert [one["title"] for one in editor.of("session_info_update")] == ["What is 6 * 7?"]


async def test_output_comes_while_the_cell_runs(workspace: Path) -> None:
    code = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'):\n    time.sleep(0.01)"
    async with (
        editing(workspace, [call("python", code=code), {"text": "Done."}]) as editor,
        anyio.create_task_group() as group,
    ):
        group.start_soon(editor.prompt, "Wait.")
        await editor.until(lambda: any("begun" in text for shown in editor.calls() for text in texts(shown)[1:]))
        assert editor.calls()[0]["status"] == "in_progress"
        (workspace / "go").touch()


async def test_an_edit_has_both_sides_and_calls_of_a_cell_name_it(workspace: Path) -> None:
    (workspace / "a.py").write_text("x = 1\ny = 2\n")
    inside = "from servers.filesystem import read_file\nprint(await read_file('a.py'))"
    replies = [call("edit_file", path="a.py", old="x = 1", new="x = 3"), call("python", code=inside), {"text": "Done."}]
    async with editing(workspace, replies, "--mode", "auto") as editor:
        await editor.prompt("Set x to 3.")
    edit, cell, read = editor.calls()
    assert edit["kind"] == "edit"
    (diff,) = [one for one in edit["content"] if one["type"] == "diff"]
    assert (diff["oldText"], diff["newText"]) == ("x = 1\ny = 2\n", "x = 3\ny = 2\n")
    assert read["kind"] == "read"
    assert read["_meta"]["pinfold"]["parentToolCallId"] == cell["toolCallId"]
    assert read["locations"][0]["path"] == str(workspace / "a.py")


async def test_pictures_go_both_ways(workspace: Path) -> None:
    code = f"class Picture:\n    def _repr_png_(self):\n        return {PNG!r}\nPicture()"
    picture = wire.ImageContentBlock(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")
    async with editing(workspace, [call("python", code=code), {"text": "A picture."}]) as editor:
        assert await editor.prompt("Show this again:", picture) == "end_turn"
        (shown,) = editor.calls()
        pictures = [one["content"] for one in shown["content"] if one.get("content", {}).get("type") == "image"]
        assert [base64.b64decode(one["data"]) for one in pictures] == [PNG]
        with pytest.raises(RequestError, match="a model cannot look at"):
            await editor.prompt(wire.ImageContentBlock(type="image", data="aGVsbG8=", mime_type="image/png"))


async def test_files_and_links_are_named_to_the_model_and_never_read_through_the_editor(workspace: Path) -> None:
    resource = wire.TextResourceContents(uri=(workspace / "open.py").as_uri(), text="unsaved = True")
    blocks = [
        wire.EmbeddedResourceContentBlock(type="resource", resource=resource),
        wire.ResourceContentBlock(type="resource_link", uri=(workspace / "b.py").as_uri(), name="b.py"),
    ]
    expect = {"text": "Seen.", "expect": "unsaved = True"}
    async with editing(workspace, [expect], capabilities={"fs": {"readTextFile": True}}) as editor:
        assert await editor.prompt("Compare ", *blocks) == "end_turn"
        await editor.connection.load_session(session_id=editor.session, cwd=str(workspace), mcp_servers=[])
    said = editor.of("user_message_chunk")[0]["content"]["text"]
    assert said.startswith("Compare `open.py``b.py`")
    assert "unsaved = True" in said


@pytest.mark.parametrize(("option", "status"), [("allow", "completed"), ("session", "completed"), ("deny", "failed")])
async def test_the_user_is_shown_the_exact_bytes_and_decides(workspace: Path, option: str, status: str) -> None:
    (workspace / "a.txt").write_text("old\n")
    replies = [call("edit_file", path="a.txt", old="old", new="new"), {"text": "Done."}]
    async with editing(workspace, replies, answer=option) as editor:
        await editor.prompt("Edit it.")
    (asked,) = editor.asked
    shown = "".join(part["content"]["text"] for part in asked["call"]["content"])
    assert "```diff\n--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old\n+new\n```" in shown
    assert {id_: one.kind for id_, one in asked["options"].items()} == {
        "allow": "allow_once",
        "session": "allow_always",
        "always": "allow_always",
        "deny": "reject_once",
    }
    (edit,) = editor.calls()
    assert (edit["status"], edit["title"]) == (status, "edit_file a.txt")
    assert (workspace / "a.txt").read_text() == ("old\n" if option == "deny" else "new\n")


async def test_an_allowed_session_is_not_asked_again_and_an_invented_option_allows_nothing(workspace: Path) -> None:
    (workspace / "a.txt").write_text("1\n")
    first, second = (call("edit_file", path="a.txt", old=old, new=new) for old, new in (("1", "2"), ("2", "3")))
    chosen = iter(["bogus", "session"])

    async def answer(_: Any) -> str:
        return next(chosen)

    async with editing(workspace, [first, first, second, {"text": "Done."}], answer=answer) as editor:
        await editor.prompt("Count up.")
    assert len(editor.asked) == 2
    assert [one["status"] for one in editor.calls()] == ["failed", "completed", "completed"]
    assert (workspace / "a.txt").read_text() == "3\n"


async def test_nobody_is_asked_about_what_is_too_long_to_be_shown(workspace: Path) -> None:
    (workspace / "a.txt").write_text("old\n")
    replies = [call("edit_file", path="a.txt", old="old", new="x" * 250_000), {"text": "Done."}]
    async with editing(workspace, replies, answer="allow") as editor:
        await editor.prompt("Edit it.")
    assert not editor.asked
    assert "too long to show in full" in texts(editor.calls()[0])[0]
    assert (workspace / "a.txt").read_text() == "old\n"


async def test_several_requests_wait_at_once_and_are_answered_in_any_order(workspace: Path) -> None:
    (workspace / "a.txt").write_text("old\n")
    first, second = anyio.Event(), anyio.Event()

    async def answer(_: Any) -> str:
        if not first.is_set():
            first.set()
            await second.wait()
            return "deny"
        second.set()
        return "allow"

    async with editing(
        workspace, [call("edit_file", path="a.txt", old="old", new="new"), {"text": "Done."}], answer=answer
    ) as editor:
        other = (await editor.connection.new_session(cwd=str(workspace), mcp_servers=[])).session_id
        async with anyio.create_task_group() as group:
            group.start_soon(editor.prompt, "Edit it.")
            await first.wait()
            edit: list[Any] = [wire.TextContentBlock(type="text", text="Edit it too.")]
            assert (await editor.connection.prompt(session_id=other, prompt=edit)).stop_reason == "end_turn"
    assert sorted(one["status"] for one in editor.calls()) == ["completed", "failed"]
    assert (workspace / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize("forms", [True, False])
async def test_a_question_of_the_agent_reaches_the_user(workspace: Path, forms: bool) -> None:
    async def answer(asked: Any) -> Any:
        if not forms:
            return next(id_ for id_, one in asked["options"].items() if one.name == "blue")
        return wire.AcceptElicitationResponse(action="accept", content={"answer": "blue"})

    replies = [call("ask_user", question="Which colour?", options=["red", "blue"]), {"text": "Good.", "expect": "blue"}]
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}} if forms else {}
    async with editing(workspace, replies, answer=answer, capabilities=capabilities) as editor:
        assert await editor.prompt("Ask me.") == "end_turn"
    (asked,) = editor.asked
    assert "Which colour?" in (asked["message"] if forms else asked["call"]["title"])


async def test_a_question_without_options_is_left_to_the_answer_where_there_are_no_forms(workspace: Path) -> None:
    replies = [
        call("ask_user", question="Which colour?"),
        {"text": "Which colour?", "expect": "no form for a question"},
    ]
    async with editing(workspace, replies) as editor:
        await editor.prompt("Ask me.")
    assert not editor.asked
    assert editor.text.endswith("Which colour?")


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(600)"])
async def test_cancelling_stops_the_cell_and_keeps_the_session(workspace: Path, code: str) -> None:
    """ACP-CANCEL-001, ACP-CANCEL-002."""
    replies = [
        call("python", code=f"x = 5\nprint('begun', flush=True)\n{code}"),
        call("python", code="print(x)"),
        {"text": "Still here."},
    ]
    async with editing(workspace, replies) as editor:
        reasons: list[str] = []

        async def run() -> None:
            reasons.append(await editor.prompt("Go."))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await editor.until(lambda: any("begun" in text for one in editor.calls() for text in texts(one)[1:]))
            await editor.connection.cancel(session_id=editor.session)
        assert reasons == ["cancelled"]
        assert "result" in editor.lines[-1]  # all updates came before the answer
        assert editor.calls()[0]["status"] == "failed"
        assert await editor.prompt("Go on.") == "end_turn"
        assert "5" in texts(editor.calls()[1])[1]


async def test_cancelling_while_the_user_is_asked_withdraws_the_question(workspace: Path) -> None:
    (workspace / "a.txt").write_text("old\n")
    waiting = anyio.Event()

    async def answer(_: Any) -> None:
        waiting.set()
        await anyio.sleep(3600)

    replies = [call("edit_file", path="a.txt", old="old", new="new"), {"text": "Done."}]
    async with editing(workspace, replies, answer=answer) as editor, anyio.create_task_group() as group:
        group.start_soon(editor.prompt, "Edit it.")
        await waiting.wait()
        await editor.connection.cancel(session_id=editor.session)
        await editor.until(lambda: editor.lines[-1].get("result") == {"stopReason": "cancelled"})
        assert [one["method"] for one in editor.lines if "method" in one][-1] != "session/request_permission"
        assert any(one.get("method") == "$/cancel_request" for one in editor.lines)
    assert (workspace / "a.txt").read_text() == "old\n"


async def test_a_model_that_fails_is_an_error_of_one_line_and_the_next_prompt_works(workspace: Path) -> None:
    """ACP-JSONRPC-005, ACP-ERROR-001."""
    async with editing(workspace, [{"error": "the model\nburns", "status": 400}, {"text": "Back."}]) as editor:
        with pytest.raises(RequestError, match="burns"):
            await editor.prompt("Go.")
        assert await editor.prompt("Again.") == "end_turn"
        assert editor.text.endswith("Back.")


async def test_a_limit_of_steps_and_usage_are_told(workspace: Path) -> None:
    counted = {"usage": {"input_tokens": 900, "output_tokens": 100}, "cost": 0.25}
    again = {**call("python", code="1"), **counted}
    async with editing(workspace, [again, again, {"text": "Done."}], "--max-steps", "1") as editor:
        assert await editor.prompt("Go.") == "max_turn_requests"


async def run_commands(editor: Editor, *commands: str) -> None:
    for command in commands:
        assert await editor.prompt(command) == "end_turn"


async def test_slash_commands_run_without_a_model(workspace: Path) -> None:
    async with editing(workspace, [call("python", code="x = 1\nopen('a', 'w').close()"), {"text": "Done."}]) as editor:
        await editor.prompt("Go.")
        (offered,) = editor.of("available_commands_update")
        names = [one["name"] for one in offered["availableCommands"]]
        assert {"undo", "redo", "fork", "vars", "plan", "compact"} <= set(names)
        await run_commands(editor, "/vars", "/undo")
        assert not (workspace / "a").exists()
        await run_commands(editor, "/redo")
        assert (workspace / "a").exists()
        await run_commands(editor, "/undo 7", "/nonsense", "/cost", "/tools read", "/rename Mine", "/fork", "/clear")
        listed = await editor.connection.list_sessions(cwd=str(workspace))
    for words in ("x     int", "undid cell 1", "redid cell 1", "7 cells cannot be undone", "/nonsense: there is no"):
        assert words in editor.text, words
    assert "Forked as s_" in editor.text
    assert "Context cleared" in editor.text
    assert [one.title for one in listed.sessions] == ["Mine", "Mine"]


async def test_modes_models_and_the_plan_are_told(workspace: Path) -> None:
    """ACP-MODES-001, ACP-MODES-002, ACP-CONFIG-001, ACP-CONFIG-002, ACP-CONFIG-003."""
    plan = "from servers.project import plan\nawait plan(['read', {'text': 'write', 'status': 'doing'}], goal='x')"
    replies = [call("python", code=plan), call("shell", command="touch made"), {"text": "Planned."}]
    other = workspace.parent / "other.jsonl"
    other.write_text('{"text": "Another model."}\n')
    async with editing(workspace, replies, "--mode", "auto") as editor:
        await editor.connection.set_session_mode(session_id=editor.session, mode_id="plan")
        await editor.prompt("Make a plan.")
        assert not (workspace / "made").exists()
        changed = await editor.connection.set_config_option(
            session_id=editor.session, config_id="model", value=f"scripted:{other}"
        )
        values = {one.id: one.current_value for one in changed.config_options}
        assert values == {"mode": "plan", "model": f"scripted:{other}"}
        await editor.connection.set_session_mode(session_id=editor.session, mode_id="full")
        await editor.prompt("Go.")
        with pytest.raises(RequestError, match="no mode 'nonsense'; choose read-only, ask, auto, full, plan"):
            await editor.connection.set_session_mode(session_id=editor.session, mode_id="nonsense")
        with pytest.raises(RequestError):
            await editor.connection.set_config_option(session_id=editor.session, config_id="model", value="nope:x")
        # Files are mounted otherwise there: the session is reopened, with its variables.
        for mode in ("read-only", "auto"):
            await editor.connection.set_session_mode(session_id=editor.session, mode_id=mode)
            assert editor.of("config_option_update")[-1]["configOptions"][0]["currentValue"] == mode
        await editor.prompt("/vars")
        assert "plan" in editor.text.rpartition("name")[2]
    entries = editor.of("plan")[-1]["entries"]
    assert [(one["content"], one["status"]) for one in entries] == [("read", "pending"), ("write", "in_progress")]
    assert [one["currentModeId"] for one in editor.of("current_mode_update")] == ["plan", "full"]
    assert "Another model." in editor.text
