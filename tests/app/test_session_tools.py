"""The tools of a session at work: judged, asked about, done inside, undone. Real sandbox, scripted model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pinfold import Agent, Approval, Decision, tool
from pinfold.app.trust.secrets import Secrets
from pinfold.app.trust.workspace_trust import Grants
from pinfold.events import ActionDenied, ActionFinished, ActionProposed, CallTool, Event
from pinfold.model import ScriptedModel
from pinfold.model.protocol import TextCallLayer
from pinfold.model.scripted import KeptReply

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Script = Callable[..., str]


def calls(name: str, **args: Any) -> dict[str, Any]:
    return {"calls": [{"tool": name, "args": args}]}


def agent_of(workspace: Path, model: str, **more: Any) -> Agent:
    return Agent(model=model, workspace=workspace, sandbox="namespaces", ephemeral=True, **more)


class Asked:
    """Answers each question in turn, the last answer for all that follow."""

    def __init__(self, *answers: bool | str | Decision) -> None:
        self.answers = list(answers)
        self.approvals: list[Approval] = []

    async def __call__(self, approval: Approval) -> bool | str | Decision:
        self.approvals.append(approval)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def turn(agent: Agent, prompt: str = "go") -> list[Event]:
    return [event async for event in agent.stream(prompt)]  # pyright: ignore[reportReturnType]


def seen(events: list[Event]) -> list[str]:
    return [event.observation for event in events if isinstance(event, ActionFinished)]


heard: list[str] = []
"""What came as Authorization."""


@pytest.fixture
def server() -> Generator[str]:
    """A page on loopback, and `host:port` of it."""
    heard.clear()

    class Page(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            body = b"a page from elsewhere"
            heard.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=listener.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{listener.server_port}"
    listener.shutdown()
    listener.server_close()


async def test_edits_and_commands_are_steps_that_undo_takes_back_one_by_one(workspace: Path, script: Script) -> None:
    (workspace / "a.txt").write_text("one\n")
    model = script(
        calls("edit_file", path="a.txt", old="one", new="two"),
        calls("shell", command="echo three >> a.txt && rm -f nothing"),
        {"text": "ok"},
    )
    async with agent_of(workspace, model) as agent:
        await turn(agent)
        assert (workspace / "a.txt").read_text() == "two\nthree\n"
        assert (await agent.undo()).effects == ()
        assert (workspace / "a.txt").read_text() == "two\n"
        await agent.undo()
        assert (workspace / "a.txt").read_text() == "one\n"
        await agent.redo()
        assert (workspace / "a.txt").read_text() == "two\n"


async def test_what_a_cell_calls_for_is_undone_with_the_cell(workspace: Path, script: Script, cell: Any) -> None:
    code = (
        "from _pinfold_guest.calls import call\n"
        "call('write_file', path='b.txt', content='made')\n"
        "print(call('shell', command='cat b.txt')['stdout'])"
    )
    async with agent_of(workspace, script(cell(code), {"text": "ok"})) as agent:
        assert seen(await turn(agent))[-1].startswith("made\n")
        rewound = await agent.undo()
    assert (rewound.effects, (workspace / "b.txt").exists()) == ((), False)


async def test_a_command_that_fails_is_not_ok_and_code_that_called_it_gets_its_code(
    workspace: Path, script: Script, cell: Any, tmp_path: Path
) -> None:
    code = "from servers.system import shell\nprint('code', shell('exit 4')['code'])"
    model = script(
        calls("shell", command="echo made > a.txt; exit 3"),
        {"expect": "[exit code 3]", **calls("shell", command="sleep 9", timeout_s=0.1)},
        {"expect": "not done after 0.1 s", **cell(code)},
        {"expect": "code 4", "text": "ok"},
    )
    async with agent_of(workspace, model) as agent:
        ended = [event for event in await turn(agent) if isinstance(event, ActionFinished)]
        agent.save(tmp_path / "story.md")
    assert [event.outcome for event in ended] == ["error", "timeout", "error", "ok"]
    assert (workspace / "a.txt").read_text() == "made\n"
    assert "error" in (tmp_path / "story.md").read_text("utf-8")


async def test_an_edit_is_asked_about_with_its_diff(workspace: Path, script: Script) -> None:
    (workspace / "a.txt").write_text("one\n")
    edit = calls("edit_file", path="a.txt", old="one", new="two")
    asked = Asked("keep it as it is", True)
    model = script(edit, edit, {"expect": "keep it as it is", "text": "ok"})
    async with agent_of(workspace, model, mode="ask", approve=asked) as agent:
        told = seen(await turn(agent))
    assert [("-one\n+two" in one.shows, one.pattern) for one in asked.approvals] == [(True, "edit: ./*")] * 2
    assert told[0] == "This was not run: keep it as it is"
    assert (workspace / "a.txt").read_text() == "two\n"


async def test_what_would_be_deleted_is_counted(workspace: Path, script: Script) -> None:
    (workspace / "old").mkdir()
    for number in range(3):
        (workspace / "old" / f"{number}.txt").write_text("x" * 100)
    asked = Asked(False)
    model = script(
        calls("shell", command="rm -rf old"),
        calls("shell", command="ls | sort && find old -name 1.txt -delete"),
        {"text": "ok"},
    )
    async with agent_of(workspace, model, mode="ask", approve=asked) as agent:
        await turn(agent)
    assert [one.shows.splitlines()[2:] for one in asked.approvals] == [
        ["  writes  rm -rf old", "Deletes 3 files, 300 bytes: old"],
        [
            "  reads   ls",
            "  reads   sort",
            "  writes  find old -name 1.txt -delete",
            "Deletes at most 3 files, 300 bytes: old",
        ],
    ]
    assert (workspace / "old" / "0.txt").exists()


@pytest.mark.parametrize(("mode", "asks"), [("ask", 1), ("full", 1), ("auto", 0), ("read-only", 0)])
async def test_the_host_is_reached_only_by_asking(
    workspace: Path, script: Script, tmp_path: Path, mode: Any, asks: int
) -> None:
    outside = tmp_path / "outside"
    asked = Asked(True)
    model = script(calls("shell", command=f"echo out > {outside}", where="host"), {"text": "ok"})
    async with agent_of(workspace, model, mode=mode, approve=asked) as agent:
        await turn(agent)
    assert (len(asked.approvals), outside.exists()) == (asks, bool(asks))
    if asks:
        assert (asked.approvals[0].pattern, str(outside) in asked.approvals[0].shows) == ("", True)


@pytest.mark.parametrize(("mode", "written"), [("ask", True), ("full", True), ("auto", False)])
async def test_a_file_that_steers_the_agent_is_written_by_the_host_once_the_user_says_yes(
    workspace: Path, script: Script, mode: Any, written: bool
) -> None:
    asked = Asked(True)
    model = script(calls("write_file", path="AGENTS.md", content="be kind\n"), {"text": "ok"})
    async with agent_of(workspace, model, mode=mode, approve=asked) as agent:
        events = await turn(agent)
    assert (workspace / "AGENTS.md").exists() is written
    assert len(asked.approvals) == written
    assert bool([event for event in events if isinstance(event, ActionDenied)]) is not written
    if written:
        assert "+be kind" in asked.approvals[0].shows


async def test_a_yes_for_always_holds_in_the_next_session_until_it_is_revoked(workspace: Path, script: Script) -> None:
    command = calls("shell", command="touch made.txt")
    asked = Asked(Decision(allow=True, scope="always"), False)
    for expected in (1, 1):
        async with agent_of(workspace, script(command, {"text": "ok"}), mode="ask", approve=asked) as agent:
            await turn(agent)
        assert len(asked.approvals) == expected
    pattern = asked.approvals[0].pattern
    assert (pattern, asked.approvals[0].stored) == ("shell: touch *", str(Grants().file))
    Grants().revoke(pattern)
    async with agent_of(workspace, script(command, {"text": "ok"}), mode="ask", approve=asked) as agent:
        await turn(agent)
    assert len(asked.approvals) == 2


async def test_a_listed_page_is_fetched_and_what_left_is_on_record(
    workspace: Path, script: Script, server: str
) -> None:
    model = script(calls("fetch", url=f"http://{server}/page"), {"expect": "a page from elsewhere", "text": "ok"})
    async with agent_of(workspace, model, allow_hosts=[server]) as agent:
        finished = [event for event in await turn(agent) if isinstance(event, ActionFinished)]
    assert [(one.untrusted, [sent.to for sent in one.sent]) for one in finished] == [(True, [server])]


async def test_code_reaches_a_listed_host_and_no_other_without_asking(
    workspace: Path, script: Script, cell: Any, server: str
) -> None:
    code = "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1.nip.example:1/').read())"
    asked = Asked(False)
    listed = (
        "import http.client, os, urllib.parse\n"
        "proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])\n"
        "line = http.client.HTTPConnection(proxy.hostname, proxy.port)\n"
        f"line.request('GET', 'http://{server}/')\n"
        "print(line.getresponse().read().decode())"
    )
    model = script(cell(listed), cell(code), {"text": "ok"})
    async with agent_of(workspace, model, allow_hosts=[server], approve=asked) as agent:
        events = await turn(agent)
    assert any(text.startswith("a page from elsewhere") for text in seen(events))
    assert [one.reason for one in asked.approvals] == ["code wants 127.0.0.1.nip.example:1"]
    sent = [one.to for event in events if isinstance(event, ActionFinished) for one in event.sent]
    assert sent == [server]


async def test_what_is_switched_off_is_neither_told_nor_callable(
    workspace: Path, script: Script, cell: Any, tmp_path: Path
) -> None:
    config = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[tools]\ndisable = ["shell", "fetch"]\n')
    code = (
        "from _pinfold_guest.calls import call\ntry:\n    call('shell', command='ls')\nexcept ToolError as e: print(e)"
    )
    told: list[set[str]] = []

    class Watch:
        def before_model(self, request: Any) -> Any:
            told.append({tool.name for tool in request.tools})
            assert "fetch" not in request.system
            return request

    async with agent_of(workspace, script(calls("shell", command="ls"), cell(code), {"text": "ok"})) as agent:
        agent.add_callback(Watch())
        texts = seen(await turn(agent))
    assert told[0] == {"python", "read_file", "edit_file", "ask_user"}
    assert [text for text in texts if "shell is switched off" in text]
    assert not [text for text in texts if text.startswith("total")]


async def test_a_result_that_was_cut_can_be_opened_again(workspace: Path, script: Script) -> None:
    (workspace / "long.txt").write_text("".join(f"line {number}\n" for number in range(5000)))
    model = script(calls("shell", command="cat long.txt"), {"text": "cut"})
    async with agent_of(workspace, model) as agent:
        text = seen(await turn(agent))[0]
    handle = text.partition('read_file("')[2].partition('"')[0]
    assert handle.startswith("blob:")


async def test_guards_are_switched_while_the_agent_runs(workspace: Path, script: Script, cell: Any) -> None:
    model = script(cell("import os; print(1)"), {"text": "a"}, cell("import os; print(2)"), {"text": "b"})
    async with agent_of(workspace, model) as agent:
        agent.set_guards(imports=["math"])
        assert "os" in seen(await turn(agent))[0]
        agent.set_guards()
        assert seen(await turn(agent)) == ["2\n"]


async def test_the_agents_question_gets_the_users_words(workspace: Path, script: Script) -> None:
    model = script(calls("ask_user", question="Which?", options=["red"]), {"expect": "blue", "text": "ok"})
    asked = Asked("blue")
    async with agent_of(workspace, model, approve=asked) as agent:
        assert (await agent.run("go")).text == "ok"
    assert (asked.approvals[0].question, asked.approvals[0].options) == (True, ("red",))


async def test_waiting_for_the_user_is_not_the_cells_time(
    workspace: Path, script: Script, cell: Any, tmp_path: Path
) -> None:
    import anyio

    config = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[sandbox]\ncell_s = 2.0\n")
    code = (
        "import urllib.request\ntry:\n    urllib.request.urlopen('http://never.example/')\n"
        "except OSError as error: print('refused')"
    )

    async def approve(_: Approval) -> bool:
        await anyio.sleep(2.2)
        return False

    async with agent_of(workspace, script(cell(code), {"text": "ok"}), approve=approve) as agent:
        assert seen(await turn(agent))[-1].startswith("refused")


async def test_a_tool_of_the_workspace_is_there_once_it_is_trusted(workspace: Path, script: Script) -> None:
    from pinfold.app.trust.project_files import read_project_files
    from pinfold.app.trust.workspace_trust import trust

    (workspace / "tools").mkdir()
    (workspace / "tools" / "greet.yaml").write_text(
        "name: greet\ndescription: Greets.\nparameters:\n  who: {type: string}\ncommand: [echo, 'hello {who}']\n"
    )
    model = calls("greet", who="Ann"), {"text": "ok"}
    async with agent_of(workspace, script(*model)) as agent:
        assert "no tool is called 'greet'" in seen(await turn(agent))[0]
    trust(read_project_files(workspace))
    asked = Asked(True)
    async with agent_of(workspace, script(*model), approve=asked) as agent:
        events = await turn(agent)
    assert seen(events)[0].startswith("hello Ann")
    assert [event.action for event in events if isinstance(event, ActionProposed)] == [
        CallTool(tool="greet", args={"who": "Ann"})
    ]


async def test_a_connection_is_asked_about_by_being_opened_and_not_by_name(
    workspace: Path, script: Script, cell: Any
) -> None:
    code = "from _pinfold_guest.calls import call\ncall('network', host='example.org', port=443, how='tunnel')"
    asked = Asked(True)
    model = script(calls("network", host="example.org", port=443, how="tunnel"), cell(code), {"text": "ok"})
    async with agent_of(workspace, model, approve=asked) as agent:
        told = seen(await turn(agent))
    assert asked.approvals == []
    assert all("no tool is called 'network'" in text for text in told)


async def test_a_secret_goes_with_a_fetch_to_its_host_and_nowhere_else(
    workspace: Path, script: Script, cell: Any, server: str
) -> None:
    Secrets().set("TOKEN", "hidden-1234-5678", ["127.0.0.1"], "Authorization: Bearer {}")
    code = "import os\nprint([value for value in os.environ.values() if 'hidden' in value])"
    model = script(calls("fetch", url=f"http://{server}/"), cell(code), {"text": "ok"})
    async with agent_of(workspace, model, allow_hosts=[server]) as agent:
        events = await turn(agent)
    assert heard == ["Bearer hidden-1234-5678"]
    assert seen(events)[-1] == "[]\n"
    assert "hidden-1234" not in repr(events)
    Secrets().set("TOKEN", "hidden-1234-5678", ["example.org"])
    async with agent_of(
        workspace, script(calls("fetch", url=f"http://{server}/"), {"text": "ok"}), allow_hosts=[server]
    ) as agent:
        await turn(agent)
    assert heard[1:] == [""]


async def test_code_does_not_change_what_steers_the_agent_even_with_a_yes(
    workspace: Path, script: Script, cell: Any
) -> None:
    code = "from _pinfold_guest.calls import call\ncall('write_file', path='AGENTS.md', content='obey')"
    asked = Asked(True)
    async with agent_of(workspace, script(cell(code), {"text": "ok"}), mode="ask", approve=asked) as agent:
        told = seen(await turn(agent))
    assert "code cannot change a file that steers the agent" in told[0]
    assert not (workspace / "AGENTS.md").exists()


async def test_a_model_that_only_speaks_reaches_every_tool_by_name_and_alias(workspace: Path) -> None:
    @tool(effect="pure")
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    spoken = [
        '<tool name="write_file">{"path": "a.csv", "content": "x,y\\n1,2\\n"}</tool>',
        '<tool name="list_files">{"path": "."}</tool>',
        '<tool name="data_view">{"path": "a.csv"}</tool>',
        '<tool name="calculator">6*7</tool>',
        '<tool name="now"/>',
        '<tool name="bash">echo from the shell</tool>',
        '<tool_call>{"name": "double", "arguments": {"number": 21}}</tool_call>',
        '<tool name="juggle">{}</tool>',
    ]
    model = TextCallLayer(ScriptedModel([KeptReply(text=text) for text in (*spoken, "done")]))
    agent = Agent(model=model, workspace=workspace, sandbox="namespaces", ephemeral=True, mode="full", tools=[double])
    async with agent:
        events = await turn(agent)
    observed = dict(zip(spoken, seen(events), strict=True))
    assert (workspace / "a.csv").read_text() == "x,y\n1,2\n"
    for text, words in zip(spoken, ("a.csv", "a.csv", "1  2", "42", "20", "from the shell", "42"), strict=False):
        assert words in observed[text], (text, observed[text])
    assert "no tool is called 'juggle'" in observed[spoken[-1]].lower()
