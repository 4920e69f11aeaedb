"""`Agent` without asyncio, and from code whose beginning and end are apart."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.front.chat.terminal import eventually

from pinfold import Agent, Approval, PinfoldError, tool
from pinfold.model.names import Access, key_for, parse_model_name
from pinfold.sandbox import Limits

pytestmark = pytest.mark.integration
REMEMBERS = ("x = 3", "set"), ("print('x is', x)", "seen")


def agent_of(workspace: Path, model: str, **more: Any) -> Agent:
    return Agent(model=model, workspace=workspace, sandbox="unsafe-local", ephemeral=True, **more)


@pytest.fixture
def model(script: Any, cell: Any) -> str:
    return script(*(reply for code, text in REMEMBERS for reply in (cell(code), {"text": text})))


def test_a_script_needs_no_asyncio(workspace: Path, model: str) -> None:
    with agent_of(workspace, model) as agent:
        result = agent.run_sync("set x")
        assert (f"{result}", result.text) == ("set", "set")
        assert agent.run_sync("show x").text == "seen"


@pytest.mark.parametrize(
    ("use", "frames"),
    [("with {}: pass", ["<module>", "__enter__", "call"]), ("{}.run_sync('hi')", ["<module>", "run_sync", "call"])],
)
def test_a_script_that_cannot_begin_ends_in_a_short_traceback_and_one_line(
    workspace: Path, use: str, frames: list[str]
) -> None:
    made = "Agent(model='scripted:nosuch.jsonl', sandbox='unsafe-local', ephemeral=True)"
    code = f"from pinfold import Agent\n{use.format(made)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=workspace, check=False)
    first, *_, last = done.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert re.findall(r"^  File .*, in (\S+)$", done.stderr, re.MULTILINE) == frames
    assert last.endswith("nosuch.jsonl cannot be read: No such file or directory")


async def test_each_way_to_close_ends_what_the_other_opened_or_says_how(workspace: Path, model: str) -> None:
    agent = agent_of(workspace, model)
    assert re.fullmatch(r"<Agent scripted:\S+, session s_\w+, not open>", repr(agent))
    agent.run_sync("set x")
    assert repr(agent).endswith(", open>")
    await agent.close()
    assert repr(agent).endswith(", not open>")
    await agent.open()
    with pytest.raises(PinfoldError, match=r"was opened in an event loop; use `await agent\.close"):
        agent.close_sync()
    await agent.close()
    assert repr(agent).endswith(", not open>")


def test_what_is_saved_as_json_is_json(workspace: Path, model: str, tmp_path: Path) -> None:
    with agent_of(workspace, model) as agent:
        agent.run_sync("set x")
        agent.save(tmp_path / "x.json")
        agent.save(tmp_path / "x.jsonl")
    events = json.loads((tmp_path / "x.json").read_text("utf-8"))
    assert [event["kind"] for event in events][-1] == "TurnEnded"
    lines = (tmp_path / "x.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == events


def test_a_notebook_shows_the_answer_with_its_figures_and_nothing_in_it_runs_or_loads(
    workspace: Path, script: Any, cell: Any
) -> None:
    code = """
class Shown:
    def __init__(self, **forms): self.forms = forms
    def _repr_mimebundle_(self, **_): return self.forms
display(Shown(**{"image/png": b"\\x89PNG"}))
display(Shown(**{"text/html": "<table><tr><td>12</td></tr></table>"}))
display(Shown(**{"text/html": "<script>steal()</script><meta http-equiv=refresh content=0>", "text/plain": "a page"}))
"""
    said = "The **total** is 12. ![x](http://evil.example/x.png) <img src=http://evil.example/y>"
    with agent_of(workspace, script(cell(code), {"text": said})) as agent:
        shown = agent.run_sync("go")
    bundle = shown._repr_mimebundle_(include=None, exclude=None)  # pyright: ignore[reportPrivateUsage]
    html = bundle["text/html"]
    assert bundle["text/plain"] == said
    assert "<strong>total</strong>" in html
    assert 'src="data:image/png;base64,iVBORw=="' in html
    assert "<td>12</td>" in html
    assert "a page" in html
    assert not any(tag in html for tag in ("<script", "<meta", "<iframe", "<img src=http", 'src="http'))


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_a_script_switches_git_checkpoints_on_and_off(workspace: Path, script: Any, cell: Any) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    steps = [cell(f"open('{name}', 'w').close()") for name in "abc"]
    model = script(*(reply for step in steps for reply in (step, {"text": "done"})))
    made: list[int] = []
    with Agent(model=model, workspace=workspace, sandbox="namespaces", ephemeral=True) as agent:
        for on in (False, True, False):
            agent.set_checkpoints_sync(on)
            agent.run_sync("go on")
            refs = subprocess.run(
                ["git", "for-each-ref", "--format=%(objectname)"], cwd=workspace, capture_output=True, check=True
            )
            made.append(len({*refs.stdout.split()}))
    assert made == [0, 1, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_a_script_undoes_and_redoes(workspace: Path, script: Any, cell: Any) -> None:
    model = script(cell("open('made', 'w').close()"), {"text": "done"})
    with Agent(model=model, workspace=workspace, sandbox="namespaces", ephemeral=True) as agent:
        agent.run_sync("make it")
        assert (workspace / "made").exists()
        agent.undo_sync()
        assert not (workspace / "made").exists()
        agent.redo_sync()
        assert (workspace / "made").exists()


def test_the_first_run_opens_it_and_it_can_be_opened_again(workspace: Path, model: str) -> None:
    agent = agent_of(workspace, model)
    assert agent.run_sync("set x").text == "set"
    agent.close_sync()
    agent.close_sync()


def test_what_goes_wrong_while_it_opens_is_raised(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(PinfoldError, match=r"nothing\.jsonl"):
        agent_of(workspace, f"scripted:{tmp_path / 'nothing.jsonl'}").run_sync("go")


async def test_cells_of_a_notebook_open_and_close_it_in_tasks_of_their_own(workspace: Path, model: str) -> None:
    agent = agent_of(workspace, model)
    said: list[str] = []

    async def ask(prompt: str) -> None:
        said.append((await agent.run(prompt)).text)

    for step in (agent.open, lambda: ask("set x"), lambda: ask("show x"), agent.close, agent.close):
        async with anyio.create_task_group() as one_cell:
            one_cell.start_soon(step)
    assert said == ["set", "seen"]


async def test_two_runs_at_once_open_it_once(workspace: Path, script: Any) -> None:
    agent = agent_of(workspace, script({"text": "one"}, {"text": "two"}))
    said: set[str] = set()

    async def ask() -> None:
        said.add((await agent.run("go")).text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
    await agent.close()
    assert said == {"one", "two"}


async def test_the_two_ways_are_not_mixed(workspace: Path, model: str) -> None:
    async with agent_of(workspace, model) as agent:
        with pytest.raises(PinfoldError, match=r"use `await agent\.run"):
            agent.run_sync("set x")
    with agent_of(workspace, model) as agent, pytest.raises(PinfoldError, match=r"use `agent\.run_sync"):
        await agent.run("set x")


def test_a_plain_function_may_approve(workspace: Path, script: Any) -> None:
    asked: list[Approval] = []

    def approve(approval: Approval) -> bool:
        asked.append(approval)
        return True

    model = script({"calls": [{"tool": "write_file", "args": {"path": "a", "content": "b"}}]}, {"text": "done"})
    with agent_of(workspace, model, mode="ask", approve=approve) as agent:
        agent.run_sync("write")
    assert len(asked) == 1
    assert (workspace / "a").read_text() == "b"


PROGRAM = """
import sys
from pinfold import Agent
agent = Agent(model=sys.argv[1], workspace=sys.argv[2], sandbox="unsafe-local", ephemeral=True)
try:
    print(agent.run_sync("go"), flush=True)
except KeyboardInterrupt:
    print("stopped", agent.run_sync("again"), flush=True)
"""


def started(workspace: Path, model: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", PROGRAM, model, str(workspace)]
    return subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def test_a_program_that_does_not_close_it_ends_all_the_same(workspace: Path, model: str) -> None:
    with started(workspace, model) as program:
        out, _ = program.communicate(timeout=200)
    assert (program.returncode, out) == (0, "set\n")


def test_ctrl_c_interrupts_the_turn_and_the_session_goes_on(workspace: Path, script: Any, cell: Any) -> None:
    loop = cell("open('begun', 'w').close()\nwhile True: pass")
    with started(workspace, script(loop, {"text": "goes on"}, {"text": "more"})) as program:
        eventually((workspace / "begun").exists, "the cell did not begin")
        program.send_signal(signal.SIGINT)
        out, _ = program.communicate(timeout=200)
    assert (program.returncode, out) == (0, "stopped goes on\n")


def test_limits_guards_and_tools_are_bounded_by_arguments(workspace: Path, script: Any, cell: Any) -> None:
    @tool(effect="pure")
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    model = script(
        cell("import socket"),
        {"expect": "the guards do not let code import socket", "calls": [{"tool": "shell", "args": {"command": "ls"}}]},
        {"expect": "shell is switched off", **cell("while True: pass")},
        {"expect": "2 s", "text": "bounded"},
    )
    bounds: dict[str, Any] = {"guards": "strict", "tools_off": ["shell"], "limits": Limits(cell_s=2)}
    with agent_of(workspace, model, tools=[double], **bounds) as agent:
        assert str(agent.run_sync("go")) == "bounded"


@pytest.mark.parametrize("imports", [["math", "json"], None])
def test_code_imports_nothing_but_what_it_may(
    workspace: Path, script: Any, cell: Any, imports: list[str] | None
) -> None:
    told = "the guards do not let code import csv" if imports else "(no output)"
    model = script(cell("import math, json"), cell("import csv"), {"expect": told, "text": "seen"})
    with agent_of(workspace, model, imports=imports) as agent:
        assert str(agent.run_sync("go")) == "seen"


def test_how_much_the_model_sees_of_a_result_is_bounded(workspace: Path, script: Any, cell: Any) -> None:
    long = cell("for n in range(100): print('line', n)")
    expected = {"expect": "[... 94 of 100 lines left out; all of it: read_file(", "text": "cut"}
    with agent_of(workspace, script(long, expected), output_lines=6) as agent:
        assert str(agent.run_sync("go")) == "cut"


def test_a_key_goes_to_the_provider_of_the_model_it_was_given_with(workspace: Path) -> None:
    with pytest.raises(PinfoldError, match="goes with the name of a model"):
        Agent(workspace=workspace, api_key="sk-of-this-agent", ephemeral=True)
    keys = {
        model: Agent(model=model, workspace=workspace, api_key="sk-of-this-agent", ephemeral=True)._plan.options.calling  # pyright: ignore[reportPrivateUsage]
        for model in ("openai:gpt-5", "anthropic:claude-sonnet-5", "http://localhost:1/v1#m")
    }
    assert keys["openai:gpt-5"].keys["OPENAI_API_KEY"] == "sk-of-this-agent"
    assert keys["openai:gpt-5"].keys.get("ANTHROPIC_API_KEY") != "sk-of-this-agent"
    assert keys["anthropic:claude-sonnet-5"].keys["ANTHROPIC_API_KEY"] == "sk-of-this-agent"
    url = keys["http://localhost:1/v1#m"]
    assert url.keys[url.key_env] == "sk-of-this-agent"
    for server in ("lmstudio:m", "llamacpp:m", "vllm:m"):
        access = Agent(
            model=server, workspace=workspace, api_key="sk-of-this-agent", ephemeral=True
        )._plan.options.calling.access()  # pyright: ignore[reportPrivateUsage]
        assert key_for(parse_model_name(server), access) == "sk-of-this-agent"
        assert key_for(parse_model_name(server), Access()) is None
    with pytest.raises(PinfoldError, match="ollama:qwen3 takes no key; leave it out"):
        Agent(model="ollama:qwen3", workspace=workspace, api_key="sk-of-this-agent", ephemeral=True).run_sync("go")
