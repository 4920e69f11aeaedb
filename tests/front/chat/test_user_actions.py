"""What the user does in the chat besides talking: commands of their own, files, data, keys."""

from __future__ import annotations

import base64
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.front.chat.headless_chat import calling, cell, saying, talking
from tests.front.chat.terminal import Terminal
from tests.front.chat.terminal import cell as scripted_cell

from pinfold.app import SessionStore, scratch_folder
from pinfold.app.trust.secrets import Secrets
from pinfold.events import ApprovalRequested, Entry, Interrupt, Say, SessionChanged, new_turn_id

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Start = Callable[..., Terminal]
SECRET = "sk-heron-0123456789"


def test_a_command_of_the_users_runs_in_the_session_is_told_to_the_model_and_undone(
    start: Start, workspace: Path
) -> None:
    terminal = start(replies=[{"text": "seen", "expect": "The user ran `echo he''ron"}, {"text": "again"}])
    terminal.wait_on_screen("auto · ")
    terminal.enter("!echo he''ron; touch mine; cat /proc/self/uid_map > map")
    terminal.wait("    heron")
    terminal.wait("A mine")
    terminal.wait_gone("esc stops")
    assert (workspace / "mine").exists()
    # In the session's namespaces, not here.
    assert (workspace / "map").read_text() != Path("/proc/self/uid_map").read_text()
    terminal.enter("what did I do?")
    terminal.wait("seen")
    terminal.wait_gone("esc stops")
    terminal.enter("/undo")
    terminal.wait("undid cell 1")
    assert not (workspace / "mine").exists()
    terminal.enter("!sleep 600")
    terminal.wait_on_screen("running cell 2")
    terminal.feed("\x1b")
    terminal.wait("[interrupted")
    terminal.enter("and now?")
    terminal.wait("again")


def test_after_a_no_to_ones_own_command_nobody_is_to_be_told_what_to_do_instead(start: Start) -> None:
    terminal = start(replies=[], mode="ask", columns=200)
    terminal.wait_on_screen("ask · ")
    terminal.enter("""!python3 -c 'import urllib.request as u; u.urlopen("http://heron.example")'""")
    terminal.wait_on_screen("y once")
    terminal.feed("n")
    terminal.wait("heron.example:80 was not reached: the user said no")
    terminal.wait_gone("esc stops")
    assert "Tell the agent" not in terminal.raw.decode()


def test_history_is_searched_and_the_input_edited_elsewhere(start: Start, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf ' and more' >> \"$1\"\n", encoding="utf-8")
    editor.chmod(0o700)
    terminal = start(replies=[{"text": "one"}, {"text": "two"}, {"text": "three"}], EDITOR=str(editor))
    terminal.wait_on_screen("auto · ")
    for line, answer in (("count the herons", "one"), ("count the geese", "two")):
        terminal.enter(line)
        terminal.wait(answer)
        terminal.wait_gone("esc stops")
    terminal.feed("\x12HERO")  # Ctrl-R, in any case
    terminal.wait_on_screen("> count the herons")
    terminal.feed("\r")
    terminal.wait_gone("search (Ctrl-R")
    assert "three" not in terminal.text()  # it is taken, not sent
    terminal.feed("\x18\x05")
    terminal.wait_on_screen("> count the herons and more")
    terminal.feed("\r")
    terminal.wait("three")


def test_more_is_added_to_a_session_that_goes_on(start: Start, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "figures.csv").write_text("a\n41\n", encoding="utf-8")
    (tmp_path / "shared").mkdir()
    reads = "print(int(open('/mnt/datasets/figures.csv').read().split()[1]) + one)"
    writes = f"open({str(tmp_path / 'shared' / 'made')!r}, 'w').close()"
    terminal = start(
        replies=[
            scripted_cell("one = 1"),
            {"text": "begun"},
            scripted_cell(f"{reads}\n{writes}"),
            {"text": "all over"},
        ],
        columns=200,
    )
    terminal.wait_on_screen("auto · ")
    terminal.enter("begin")
    terminal.wait("begun")
    terminal.wait_gone("esc stops")
    terminal.enter(f"/data {tmp_path / 'figures.csv'}")
    terminal.wait("code may read it at /mnt/datasets/figures.csv")
    terminal.wait("session reopened: ")
    terminal.enter(f"/add {tmp_path / 'shared'}:rw")
    terminal.wait("session reopened: ", times=2)
    terminal.enter("/add /etc")
    terminal.wait("/etc cannot be mounted")
    terminal.enter(f"/add {workspace}")
    terminal.wait("is part of the workspace")
    terminal.enter("go on")
    terminal.wait("all over")
    terminal.wait("    42")
    assert (tmp_path / "shared" / "made").exists()
    assert terminal.text().count("> begin") == 1  # what is on the screen is not told again


def test_a_session_that_cannot_be_opened_with_more_goes_on_without(start: Start, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    replies = [scripted_cell("print('still', 'here')"), {"text": "all over"}]
    terminal = start("--sandbox", "unsafe-local", replies=replies)
    terminal.wait_on_screen("auto · ")
    terminal.enter(f"/add {tmp_path / 'shared'}")
    terminal.wait("unsafe-local cannot limit code to the mounted folders")
    terminal.enter("go")
    terminal.wait("still here")
    terminal.wait("all over")


async def test_the_last_answer_goes_to_the_clipboard_or_into_a_file(workspace: Path) -> None:
    async with talking(workspace, saying("# Herons\n\n42")) as (chat, _):
        assert "no answer yet" in await chat.type("/copy")
        await chat.turn("go")
        assert "clipboard (OSC 52)" in await chat.type("/copy")
        (sequence,) = chat.transcript.sequences
        inside = sequence.removeprefix("\x1b]52;c;").removesuffix("\x07")
        assert base64.b64decode(inside) == b"# Herons\n\n42"
        chat.transcript.steered = False
        assert "no clipboard" in await chat.type("/copy")
        await chat.type("/copy answer.md")
        assert (workspace / "answer.md").read_text() == "# Herons\n\n42"
        assert "exists already" in await chat.type("/copy answer.md")
        assert len(chat.transcript.sequences) == 1


async def test_an_answer_that_was_taken_back_is_not_copied(workspace: Path) -> None:
    async with talking(workspace, saying("first"), saying("second")) as (chat, _):
        await chat.turn("one")
        await chat.turn("two")
        await chat.type("/rewind 2 chat", "y")
        await chat.type("/copy answer.md")
        assert (workspace / "answer.md").read_text() == "first"
        await chat.type("/rewind 1 chat", "y")
        assert "no answer yet" in await chat.type("/copy")


async def test_what_is_opened_is_shown_and_never_run(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    programs = tmp_path / "programs"
    programs.mkdir()
    opener = programs / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$1" >> {opened}.part; mv {opened}.part {opened}\n', encoding="utf-8")
    opener.chmod(0o700)
    code = "open('plot.png', 'w').close(); open('x.desktop', 'w').close()\nopen('p.html', 'w').write('<script>1</script>hi')\nimport os; os.symlink('x.desktop', 'link.png')"
    async with talking(workspace, cell(code), saying("done")) as (chat, _):
        await chat.turn("go")
        monkeypatch.setenv("PATH", "/nowhere")
        assert f"{workspace}/plot.png" in (await chat.type("/open plot.png")).replace("\n", "")
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        for refused in ("x.desktop", "link.png", "nothing.png"):
            assert "opened" not in (await chat.type(f"/open {refused}")).split()
        assert "nothing was shown yet" in await chat.type("/open")
        page = await chat.type("/open p.html")
        made = SessionStore().folder_of(chat.session) / "displays" / "p-safe.html"
        assert "opened" in page
        assert "<script" not in made.read_text()


async def test_agents_md_is_written_after_a_yes_and_replaced_after_another(workspace: Path) -> None:
    (workspace / "sales.csv").write_text("region,revenue\nN,1\n", encoding="utf-8")
    (workspace / "Makefile").write_text("check:\n\ttrue\n", encoding="utf-8")
    (workspace / "package.json").write_text(json.dumps({"scripts": {"test": "x", "a`; rm": "y"}}))
    async with talking(workspace) as (chat, _):
        await chat.type("/init", "n")
        assert not (workspace / "AGENTS.md").exists()
        page = await chat.type("/init", "y")
        text = (workspace / "AGENTS.md").read_text(encoding="utf-8")
        for part in ("`region,revenue`", "`make check`", "`npm run test`"):
            assert part in page
            assert part in text
        assert "rm" not in text.split()
        (workspace / "AGENTS.md").write_text("mine", encoding="utf-8")
        await chat.type("/init", None)
        assert chat.asked[-1] == "Replace the existing AGENTS.md with this?"
        assert (workspace / "AGENTS.md").read_text(encoding="utf-8") == "mine"


async def test_a_model_whose_key_is_missing_asks_for_it_and_keeps_it_as_a_secret(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    async with talking(workspace) as (chat, live):
        assert not await chat.type("/model groq:heron-1", None)  # Esc
        page = await chat.type("/model groq:heron-1", SECRET)
        assert "GROQ_API_KEY is stored in" in page
        assert SECRET not in page
        assert "sent only to api.groq.com" in chat.asked[-1]
        changed = [entry.event for entry in live.log.read() if isinstance(entry.event, SessionChanged)]
        assert [event.model for event in changed] == ["groq:heron-1"]
        await chat.type("/model groq:heron-2")  # not asked again
    assert Secrets().get("GROQ_API_KEY", "api.groq.com") == SECRET
    assert Secrets().get("GROQ_API_KEY", "example.org") is None
    if Secrets().path.exists():
        assert stat.S_IMODE(Secrets().path.stat().st_mode) == 0o600


@pytest.mark.parametrize("is_scratch", [True, False])
async def test_always_is_not_offered_in_a_folder_that_is_never_used_again(workspace: Path, is_scratch: bool) -> None:
    folder = scratch_folder("s_heron") if is_scratch else workspace
    touch = calling("shell", command="touch one")
    async with talking(folder, touch, saying("done"), mode="ask", unattended=False) as (_, live):
        async with live.subscribe(0) as feed:
            await live.submit(Say(turn=new_turn_id(), text="go"))
            with anyio.fail_after(60):
                async for item in feed:
                    if isinstance(item, Entry) and isinstance(item.event, ApprovalRequested):
                        break
        (asked,) = [one.asked for one in live.pending_approvals().values()]
        assert asked is not None
        assert asked.pattern
        assert bool(asked.stored) != is_scratch
        await live.submit(Interrupt())


def test_a_key_is_not_shown_while_it_is_typed_nor_remembered(start: Start, tmp_path: Path) -> None:
    terminal = start(replies=[])
    terminal.wait_on_screen("auto · ")
    terminal.enter("/model groq:heron-1")
    terminal.wait_on_screen("key:")
    terminal.feed(SECRET)
    terminal.wait_on_screen("key: " + "*" * len(SECRET))
    terminal.feed("\r")
    terminal.wait("GROQ_API_KEY is stored in")
    terminal.wait("model: groq:heron-1")
    assert SECRET not in terminal.text()
    history = (tmp_path / "xdg" / "state" / "pinfold" / "history").read_text()
    assert "groq" in history
    assert SECRET not in history
