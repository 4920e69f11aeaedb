"""Commands of the chat over a real session: each does what it says, and says what it cannot do in one line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.front.chat.headless_chat import Talking, calling, cell, events_of, saying, talking

from pinfold.app import RemoteSession, SessionStore, fork
from pinfold.app.session import open_memory
from pinfold.app.session.mcp.files import load_servers, user_file
from pinfold.app.session.mcp.pins import FilePins
from pinfold.app.trust.project_files import read_project_files
from pinfold.app.trust.skills import install_skill, skills_folder
from pinfold.app.trust.workspace_trust import Grants, trust
from pinfold.events import (
    ActionStarted,
    ApprovalRequested,
    Configure,
    ContextCompacted,
    Decide,
    Entry,
    Interrupt,
    Say,
    SessionChanged,
    SessionRewound,
    TurnEnded,
    TurnInterrupted,
    new_turn_id,
)
from pinfold.front.chat.commands.completions import list_arguments, list_commands
from pinfold.front.chat.commands.table import COMMANDS

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


async def test_no_module_that_a_cell_wrote_is_run_by_a_command(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chat is where its workspace is, and Python takes modules from there unless it is told not to."""
    monkeypatch.chdir(workspace)
    escaped = tmp_path / "escaped"
    planted = f"import os\nopen({str(escaped)!r}, 'w').write('as the user')\n"
    code = f"import os\nos.mkdir('pinfold')\nfor name in ('pinfold/__init__', 'pinfold/__main__', 'click'):\n    open(name + '.py', 'w').write({planted!r})"
    async with talking(workspace, cell(code), saying("Done.")) as (chat, _):
        await chat.turn("go")
        assert (workspace / "click.py").exists()
        assert "Saved" in await chat.type("/export md")
        assert not escaped.exists()
    await anyio.run_process([sys.executable, "-m", "pinfold", "map"], check=False)
    assert escaped.exists()  # it would have been run


async def test_the_map_is_of_this_session(workspace: Path, tmp_path: Path) -> None:
    data = tmp_path / "figures.csv"
    data.write_text("a\n1\n", encoding="utf-8")
    async with talking(workspace, mode="ask", data={"figures": data}) as (chat, live):
        chat.transcript.width = 300
        page = await chat.type("/map")
        assert f"session {live.session}" in page
        assert "mode ask" in page
        assert "scripted" in page
        assert f"reads {data}" in page
        assert "servers.filesystem" in page
        assert "no model" not in page
        await live.submit(Configure(mode="full"))
        assert "mode full" in await chat.type("/map")


async def test_variables_files_and_outputs_are_shown_and_gone_after_undo(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n", encoding="utf-8")
    replies = (
        cell("total = 40 + 2\nprint('total is', total)"),
        saying("Total computed."),
        cell("open('a.txt', 'a').write('\\x1b[31mtwo\\n')\nopen('b.txt', 'w').write('new\\n')\nlist(range(9000))"),
        saying("Written."),
    )
    async with talking(workspace, *replies) as (chat, _):
        assert await chat.type("/vars") == "No variables.\n"
        await chat.turn("add them up")
        assert re.search(r"\btotal\b.*\bint\b.*\b1$", await chat.type("/vars"), re.MULTILINE)
        await chat.turn("write it")
        files = await chat.type("/files")
        assert re.search(r"changed +a\.txt\n +added +b\.txt\n", files)
        diff = await chat.type("/diff")
        assert "a.txt (changed, +1 -0)\n@@ -1 +1,2 @@\n one\n+" in diff
        assert "b.txt (added, +1 -0)\n@@ -0,0 +1 @@\n+new\n" in diff
        assert "\x1b" not in diff
        assert diff == await chat.type("/diff 2")
        assert await chat.type("/diff 1") == "cell 1 changed no files\n"
        assert "cell 1\ntotal is 42\n" in await chat.type("/output 1")
        whole = await chat.type("/output")
        assert "4500," in whole.replace("\n", "")  # the middle, which the model did not see
        assert re.search(r"scripted +4 +[\d,]+ +[\d,]+ +0 +unknown\n", await chat.type("/cost"))
        assert await chat.type("/undo") == ""
        assert "this session has changed no files" in await chat.type("/files")
        assert (workspace / "a.txt").read_text(encoding="utf-8") == "one\n"
        await chat.type("/undo")
        assert "total" not in await chat.type("/vars")
        await chat.type("/redo")
        assert "total" in await chat.type("/vars")


async def test_going_back_says_what_goes_and_what_stays(workspace: Path) -> None:
    replies = (cell("a = 1"), saying("one"), cell("b = 2\nopen('made.txt', 'w').close()"), saying("two"))
    async with talking(workspace, *replies) as (chat, live):
        await chat.run("a_mine", "mine = 0")
        await chat.turn("first")
        await chat.turn("second")
        shown = await chat.type("/rewind", "2", "all", "n")
        assert shown == (
            "Back to before turn 2: second\n"
            "  forgotten: turn 2\n"
            "  undone: cell 3 (variables and files)\n"
            "  files: made.txt\n"
        )
        assert "  2  second  (cell 3)\n  1  first  (cell 2)" in chat.asked[0]
        assert (workspace / "made.txt").exists()
        assert await chat.type("/rewind", None) == ""
        assert await chat.type("/rewind 1", None) == ""
        shown = await chat.type("/rewind 2 chat", "y")
        assert "stays: what cell 3 did" in shown
        assert (workspace / "made.txt").exists()
        assert "there is no turn 2" in await chat.type("/rewind 2 all")
        await chat.type("/redo")
        await chat.type("/rewind 1 all", "y")
        (_, _, rewound) = events_of(live, SessionRewound)
        assert (rewound.to, rewound.undone) == (1, (2, 3))
        assert re.findall(r"^\w+", await chat.type("/vars"), re.MULTILINE) == ["name", "mine"]
        assert not (workspace / "made.txt").exists()


async def test_wrong_words_get_one_line_that_says_how(workspace: Path) -> None:
    async with talking(workspace, cell("x = 1"), saying("done")) as (chat, _):
        chat.transcript.width = 200
        for line, words in {
            "/undo 7": "/undo: 7 cells cannot be undone: there are none",
            "/undo x": "/undo: 'x' is not a number of cells; give its number",
            "/undo one two three": "/undo: write /undo, /undo N for the last N cells, or /undo to CELL",
            "/rewind": "/rewind: there is no turn to go back to yet",
            "/diff 3": "/diff: no cell 3; nothing was run yet",
            "/output": "/output: nothing has run yet",
            "/mode brave": "/mode: no mode 'brave'; choose read-only, ask, auto, full",
            "/grants revoke 1": "/grants: no permission 1; /grants lists 0",
            "/checkpoint x": "/checkpoint: 'x' is not a checkpoint; give its number",
            "/rename": "/rename: what name? /rename TITLE",
            "/export": "/export: which format? /export FORMAT [FILE], e.g. /export md report.md",
            "/resume nobody": "/resume: there is no session 'nobody'; `pinfold sessions` lists them",
            "/hlep": "no command /hlep; did you mean /help?",
            "/zzz\x1b[2J": "no command /zzz\\x1b[2J; /help lists them",
        }.items():
            assert await chat.type(line) == f"{words}\n", line
        await chat.type("/tmp/sales.csv what is in it?")
        assert chat.said == ["/tmp/sales.csv what is in it?"]


async def test_each_command_of_help_fits_a_line_and_is_there(workspace: Path) -> None:
    async with talking(workspace) as (chat, _):
        page = await chat.type("/help")
        assert max(map(len, page.splitlines())) <= 80
        named = re.findall(r"^  /(\w+)", page, re.MULTILINE)
        assert [*dict.fromkeys(named)] == named
        assert {*named} == {name for name, _ in list_commands(chat)}
        assert {*COMMANDS} == {*named}
        for name in named:
            assert f"/{name}" in await chat.type(f"/help {name}")


async def test_skills_are_listed_with_their_trust_and_shown(workspace: Path) -> None:
    async with talking(workspace, saying("hello")) as (chat, _):
        assert "No skills. Make one" in await chat.type("/skills")
        install_skill("wading", {"SKILL.md": b"---\nname: wading\ndescription: How to wade.\n---\nSlowly.\n"})
        assert "wading  yours  trusted  How to wade." in await chat.type("/skills")
        assert "Slowly." in await chat.type("/skills wading")
        (skills_folder() / "wading/more.md").write_text("other")
        assert "changed" in (said := await chat.type("/skills"))
        assert "pinfold skill trust NAME" in said
        assert "no skill is called 'nothing'" in await chat.type("/skills nothing")


async def test_another_process_answers_for_a_session_that_it_owns(workspace: Path) -> None:
    async with talking(workspace, cell("n = 1"), saying("done")) as (chat, live):
        assert live.log.folder
        away = Talking(RemoteSession(chat.session, live.log.folder), workspace)
        await away.turn("count")
        assert re.search(r"\bn\b.*\bint\b", await away.type("/vars"))
        assert await away.type("/output") == "cell 1\n(no output)\n"
        assert "filesystem.read_file" in await away.type("/tools read file")
        await away.type("/undo")
        assert "No variables." in await away.type("/vars")
        assert await away.type("/mode ask") == ""
        assert (await live.status()).mode == "ask"
        await away.type("/rename from away")
        assert events_of(live, SessionChanged)[-1].title == "from away"


async def test_while_a_turn_runs_some_commands_wait_and_the_others_work(workspace: Path) -> None:
    async with talking(workspace, cell("x = 1"), saying("done"), cell("import time\nwhile True: time.sleep(1)")) as (
        chat,
        live,
    ):
        await chat.turn("quick")
        await fork(SessionStore(), chat.session, "another")
        async with live.subscribe(live.log.seq) as feed:
            await live.submit(Say(turn=new_turn_id(), text="long"))
            async for item in feed:
                if isinstance(item, Entry) and isinstance(item.event, ActionStarted):
                    break
            for line in ("/undo", "/redo", "/clear", "/rewind 1 all", "/new", "/resume another"):
                said = await chat.type(line)
                assert "interrupt it" in said or "a turn is running" in said, line
            assert chat.went == []
            assert re.search(r"scripted +3 ", await chat.type("/cost"))
            assert "Nothing was sent" in await chat.type("/sent")
            assert await chat.type("/mode ask") == ""
            assert (await live.status()).mode == "ask"
            await live.submit(Interrupt())
            async for item in feed:
                if isinstance(item, Entry) and isinstance(item.event, TurnInterrupted):
                    break
        await chat.type("/new")
        assert chat.went == [None]


@pytest.mark.parametrize("scope", ["session", "always"])
async def test_what_was_allowed_is_listed_and_taken_back_by_number(workspace: Path, scope: Any) -> None:
    write, again = (calling("write_file", path=f"{name}.txt", content="x") for name in "ab")
    replies = (write, saying("done"), again, saying("done"))
    async with talking(workspace, *replies, mode="ask", unattended=False) as (chat, live):
        assert "No standing permissions" in await chat.type("/grants")

        async def asked_and_allowed(text: str) -> int:
            asked = 0
            async with live.subscribe(live.log.seq) as feed:
                await live.submit(Say(turn=new_turn_id(), text=text))
                async for item in feed:
                    event = item.event if isinstance(item, Entry) else None
                    if isinstance(event, ApprovalRequested):
                        asked += 1
                        yes = Decide(id=event.id, digest=event.digest, verdict="allow", scope=scope)
                        await live.submit(yes)
                    if isinstance(event, TurnEnded):
                        return asked
            raise AssertionError

        assert await asked_and_allowed("write") == 1
        ((number, how),) = re.findall(r"^ +(\d+)  (session|always) +\S", await chat.type("/grants"), re.MULTILINE)
        assert how == scope
        assert len(Grants().all()) == (scope == "always")
        assert await chat.type(f"/grants revoke {number}") == ""
        assert "No standing permissions" in await chat.type("/grants")
        assert Grants().all() == ()
        assert await asked_and_allowed("write again") == 1


async def test_a_fork_is_a_branch_that_can_be_gone_to(workspace: Path) -> None:
    async with talking(workspace, cell("n = 1"), saying("done")) as (chat, _):
        assert "has no forks" in await chat.type("/branches")
        await chat.turn("count")
        said = await chat.type("/fork second try", "n")
        (new,) = re.findall(r"Forked as (s_\w+)", said)
        shown = await chat.type("/branches", new)
        assert f"{chat.session} *" in shown
        assert re.search(rf"^  {new} .* second try$", shown, re.MULTILINE)
        assert chat.went == [new]
        await chat.type("/fork third", "y")
        assert len(chat.went) == 2
        assert re.search(rf"^\* {chat.session}.* count$", await chat.type("/sessions"), re.MULTILINE)
        assert new in await chat.type("/sessions second")
        assert chat.session not in await chat.type("/sessions second")
        await chat.type("/resume second try")
        assert chat.went[-1] == new
        await chat.type("/resume", new)
        assert "you are in that session" in await chat.type(f"/resume {chat.session}")
        assert list_arguments(chat, "resume", new[:6]) == [new]


async def test_the_chat_is_cleared_and_the_variables_stay(workspace: Path) -> None:
    async with talking(workspace, cell("n = 1"), saying("done")) as (chat, live):
        await chat.turn("count")
        await chat.type("/clear")
        assert len(events_of(live, ContextCompacted)) == 1
        assert re.search(r"\bn\b.*\bint\b", await chat.type("/vars"))
        assert not chat.left
        await chat.type("/exit")
        assert chat.left


async def test_checkpoints_are_made_listed_and_gone_back_to(workspace: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    async with talking(workspace, cell("open('a.txt', 'w').write('one')"), saying("done")) as (chat, _):
        assert "checkpoints are off" in await chat.type("/checkpoint")
        await chat.type("/checkpoint on")
        assert "checkpoints are on" in await chat.type("/checkpoint")
        await chat.turn("write")
        shown = await chat.type("/checkpoint")
        numbers = re.findall(r"^(\d+) ", shown, re.MULTILINE)
        assert numbers
        assert list_arguments(chat, "checkpoint", "") == ["on", "off", *reversed(numbers)]
        (workspace / "a.txt").write_text("mine", encoding="utf-8")
        assert "is restored" in await chat.type(f"/checkpoint {numbers[-1]}")
        assert (workspace / "a.txt").read_text(encoding="utf-8") == "one"


async def test_arguments_are_completed_from_what_there_is(workspace: Path) -> None:
    replies = (cell("a = 1"), cell("b = 1"), saying("one"), saying("two"))
    async with talking(workspace, *replies) as (chat, _):
        await chat.turn("first")
        await chat.turn("second")
        assert list_arguments(chat, "mode", "a") == ["ask", "auto"]
        assert list_arguments(chat, "undo", "to ") == ["to 1", "to 0"]
        assert list_arguments(chat, "diff", "") == ["2", "1"]
        assert list_arguments(chat, "rewind", "") == ["2", "1"]
        assert list_arguments(chat, "rewind", "1 v") == ["1 variables"]
        assert list_arguments(chat, "help", "re") == ["redo", "rewind", "resume", "rename"]
        assert "builtin" in list_arguments(chat, "model", "b")
        assert "jsonl " in list_arguments(chat, "export", "j")
        assert list_arguments(chat, "sent", "x") == []
        assert list_arguments(chat, "nothing", "x") == []


async def test_a_session_is_written_to_a_file_and_its_model_changed(workspace: Path, tmp_path: Path) -> None:
    script = tmp_path / "other.jsonl"
    script.write_text('{"text": "from the other"}\n', encoding="utf-8")
    async with talking(workspace, saying("hello")) as (chat, live):
        await chat.turn("say hello")
        target = tmp_path / "history.jsonl"
        assert str(target) in (await chat.type(f"/export jsonl {target}")).replace("\n", "")
        assert "say hello" in target.read_text(encoding="utf-8")
        assert "'nothing' is not one of" in await chat.type("/export nothing")
        await chat.type(f"/model scripted:{script}")
        assert (await live.status()).model == f"scripted:{script}"
        await chat.turn("again")
        assert events_of(live, TurnEnded)[-1].text == "from the other"


async def test_a_command_of_the_users_own_is_said_to_the_model_and_never_shadows_ours(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    mine, theirs = (folder / ".agents" / "commands" for folder in (tmp_path / "home", workspace))
    for folder in (mine, theirs):
        folder.mkdir(parents=True)
    (mine / "review.md").write_text("---\nargument-hint: FILE\n---\nReview $1 closely.", encoding="utf-8")
    (mine / "undo.md").write_text("Undo everything there is.", encoding="utf-8")
    (theirs / "deploy.md").write_text("---\ndescription: \x1b[31mShip it\n---\nDeploy.", encoding="utf-8")
    async with talking(workspace) as (chat, _):
        chat.transcript.width = 250
        page = await chat.type("/help")
        assert re.search(r"^Yours\n  /review FILE +Review \$1 closely\.$", page, re.MULTILINE)
        assert "your /undo is ignored: a built-in command has that name" in page
        assert f"ignored, because this folder is not trusted: /deploy; review with: pinfold trust {workspace}" in page
        assert "your /undo is ignored" not in await chat.type("/help")
        await chat.type("/review a.py")
        assert await chat.type("/deploy") == (
            f"/deploy: it belongs to this folder, which is not trusted; review with: pinfold trust {workspace}\n"
        )
        assert "cannot be undone" in await chat.type("/undo 1")
        assert chat.said == ["Review a.py closely."]
        trust(read_project_files(workspace))
        page = await chat.type("/help")
        assert re.search(r"^  /deploy +\S+Ship it$", page, re.MULTILINE)
        assert "\x1b" not in page
        await chat.type("/deploy now")
        assert chat.said[-1] == "Deploy.\n\nnow"
        assert ("deploy", "\\x1b[31mShip it") in list_commands(chat)
        assert "did you mean /review?" in await chat.type("/reviw")


async def test_a_server_is_listed_and_what_it_offers_agreed_to(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    program = Path(__file__).parents[2] / "app" / "mcp" / "servers" / "notes.py"
    entry = {"command": sys.executable, "args": [str(program), str(tmp_path)]}
    user_file().parent.mkdir(parents=True)
    user_file().write_text(json.dumps({"mcpServers": {"notes": entry}}), encoding="utf-8")
    user_file().chmod(0o600)
    async with talking(workspace) as (chat, _):
        assert re.match(r"notes +\w+", await chat.type("/mcp"))
        assert list_arguments(chat, "mcp", "t") == ["trust notes"]
        shown = await chat.type("/mcp trust notes", "y")
        assert "notes says about its tools:" in shown
        assert "notes is trusted until it changes" in shown
        assert FilePins(load_servers().specs).is_trusted("notes")
        assert "no MCP server is called 'nobody'" in await chat.type("/mcp trust nobody")
        assert "write /mcp" in await chat.type("/mcp restart")


async def test_a_session_that_leaves_nothing_behind_has_its_commands_too(workspace: Path) -> None:
    async with talking(workspace, cell("n = 1"), saying("done"), kept=False) as (chat, _):
        await chat.turn("count")
        assert re.search(r"\bn\b.*\bint\b", await chat.type("/vars"))
        assert "cell 1" in await chat.type("/output")
        for line in ("/fork", "/export md"):
            assert "--ephemeral" in await chat.type(line)
        assert "has no forks" in await chat.type("/branches")
        await chat.type("/undo")
        assert "No variables." in await chat.type("/vars")


async def test_notes_are_listed_found_shown_and_forgotten(workspace: Path) -> None:
    async with talking(workspace) as (chat, _):
        assert "No notes yet" in await chat.type("/memory")
        open_memory(workspace, "s_1").remember("the port is 8080", trusted=True)
        open_memory(workspace, "s_1").remember("lunch is at noon", trusted=True, scope="global")
        open_memory(Path("/elsewhere"), "s_2").remember("the port is 9090", trusted=True)
        listed = await chat.type("/memory")
        assert ("the port is 8080" in listed, "lunch is at noon" in listed, "9090" in listed) == (True, True, False)
        found = await chat.type("/memory search which port?")
        assert ("8080" in found, "lunch" in found) == (True, False)
        assert "No note matches" in await chat.type("/memory search zebra")
        assert "by        session s_1" in await chat.type("/memory show 1")
        assert "note 1 is forgotten" in await chat.type("/memory forget 1")
        assert "there is no note 1" in await chat.type("/memory forget 1")
        assert "there is no note 3" in await chat.type("/memory forget 3"), "another folder's"
        assert "use /memory" in await chat.type("/memory what")


async def test_sessions_are_found_by_what_was_said_in_them(workspace: Path) -> None:
    async with talking(workspace, saying("Seven giraffes.")) as (chat, _):
        await chat.turn("count the animals")
        assert "No session matches" in await chat.type("/sessions zebra")
        assert "count the animals" in await chat.type("/sessions giraffe")


async def test_the_plan_and_the_notebook_are_shown_changed_and_saved(workspace: Path) -> None:
    async with talking(workspace) as (chat, live):
        assert "There is no plan yet" in await chat.type("/plan")
        assert await chat.type("/plan add load the data") == "Plan (planning)\n[ ] 1. load the data\n"
        assert "[x] 1. load the data" in await chat.type("/plan done 1")
        assert "the plan has 1 task" in await chat.type("/plan done 2")
        assert "use /plan add TEXT" in await chat.type("/plan what")
        assert "nothing is changed until you type /plan agree" in await chat.type("/plan lock")
        assert "Plan (executing)" in await chat.type("/plan agree")
        assert "is empty" in await chat.type("/notebook")
        await chat.type("/notebook decision drop rows without a date")
        assert await chat.type("/notebook") == "1. decision: drop rows without a date\n"
        assert "saved .pinfold/project.json" in await chat.type("/plan save")
        saved = json.loads((workspace / ".pinfold" / "project.json").read_text())
        assert saved["tasks"] == [{"text": "load the data", "status": "done"}]
        assert saved["notes"][0]["text"] == "drop rows without a date"
        await chat.type("/notebook remove 1")
        assert await chat.type("/plan") == "Plan (executing)\n[x] 1. load the data\n"
        plans = [event.plan for event in events_of(live, SessionChanged) if event.plan]
        assert plans[-1].notes == ()
