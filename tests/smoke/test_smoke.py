"""The named checks of `./check smoke`: does the product stand up and do its job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinfold import Agent, tool
from pinfold.hooks import TokenTracker

pytestmark = [pytest.mark.smoke, pytest.mark.installed]
LOCAL = ("--sandbox", "unsafe-local")
Cell = Callable[..., dict[str, Any]]


def test_version_is_printed(pinfold: Any) -> None:
    assert pinfold("--version").out.startswith("pinfold 0.")


def test_help_names_every_command(pinfold: Any) -> None:
    shown = pinfold("--help").out
    assert all(name in shown for name in ("run", "exec", "sessions", "resume", "export", "import", "config"))


def test_help_loads_nothing_heavier_than_click() -> None:
    probe = (
        "import sys\nfrom pinfold.front.cli.main import run_command_line\n"
        "try: run_command_line(['--help'])\nexcept SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    third_party = loaded - sys.stdlib_module_names - {"__main__", "sitecustomize", "usercustomize"}
    assert {name for name in third_party if not name.startswith(("_", "distutils"))} == {"click", "pinfold"}
    assert loaded.isdisjoint({"asyncio", "sqlite3", "ssl", "multiprocessing", "http", "unittest"})


def test_a_scripted_model_runs_a_cell_and_answers(pinfold: Any, script: Any, cell: Cell) -> None:
    model = script(cell("x = 6 * 7\nprint('cell says', x)"), {"expect": "cell says 42", "text": "It is 42."})
    done = pinfold("run", *LOCAL, "--model", model, "six times seven?")
    assert (done.code, done.out) == (0, "It is 42.\n")


def test_json_prints_one_durable_event_per_line(pinfold: Any, script: Any, cell: Cell) -> None:
    done = pinfold("run", *LOCAL, "--json", "--model", script(cell("print(1)"), {"text": "done"}), "go")
    assert [event["seq"] for event in done.events] == list(range(1, len(done.events) + 1))
    assert (done.events[-1]["kind"], done.events[-1]["text"]) == ("TurnEnded", "done")


def test_variables_stay_from_cell_to_cell(pinfold: Any, script: Any, cell: Cell) -> None:
    model = script(cell("x = 20"), cell("print(x + 1)"), {"expect": "21", "text": "ok"})
    assert pinfold("run", *LOCAL, "--model", model, "go").out == "ok\n"


def test_exec_prints_output_and_the_last_value(pinfold: Any) -> None:
    done = pinfold("exec", *LOCAL, "-c", "print('hello')\n40 + 2")
    assert (done.code, done.out) == (0, "hello\n42\n")


def test_exec_reads_a_program_from_standard_input(pinfold: Any) -> None:
    assert pinfold("exec", *LOCAL, "-", given="print('from stdin')").out == "from stdin\n"


def test_an_error_in_the_program_exits_with_1_and_its_traceback(pinfold: Any) -> None:
    done = pinfold("exec", *LOCAL, "-c", "1 / 0")
    assert done.code == 1
    assert "ZeroDivisionError: division by zero" in done.err


def test_a_cell_over_its_time_is_stopped_and_its_state_kept(pinfold: Any, script: Any, cell: Cell) -> None:
    model = script(cell("x = 5\nwhile True: pass"), cell("print('still', x)"), {"expect": "still 5", "text": "kept"})
    done = pinfold("run", *LOCAL, "--timeout", "0.5", "--model", model, "go")
    assert (done.code, done.out) == (0, "kept\n")


def test_sessions_are_listed_and_shown(pinfold: Any, script: Any) -> None:
    pinfold("run", *LOCAL, "--model", script({"text": "hello there"}), "greet me")
    listed = [json.loads(line) for line in pinfold("sessions", "--json").out.splitlines()]
    assert [row["title"] for row in listed] == ["greet me"]
    assert "hello there" in pinfold("sessions", "show", listed[0]["session"]).out


def test_resume_goes_on_where_the_conversation_stopped(pinfold: Any, script: Any) -> None:
    model = script({"text": "one"}, {"expect": "one", "text": "two"})
    pinfold("run", *LOCAL, "--model", model, "first")
    assert pinfold("resume", "last", "second").out == "two\n"


def test_a_bundle_carries_a_session_to_another_machine(
    pinfold: Any, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinfold("run", *LOCAL, "--model", script({"text": "keep this"}), "say it")
    bundle = str(tmp_path / "b.pinfold")
    assert pinfold("export", "last", "--to", "bundle", "-o", bundle).code == 0
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    session = pinfold("import", bundle).out.strip()
    assert "keep this" in pinfold("sessions", "show", session).out


def test_a_recording_of_a_session_replays_it(pinfold: Any, script: Any, cell: Cell, tmp_path: Path) -> None:
    pinfold("run", *LOCAL, "--model", script(cell("print(2 ** 10)"), {"text": "1024"}), "go")
    recording = tmp_path / "r.jsonl"
    recording.write_text(pinfold("export", "last", "--to", "replay").out, encoding="utf-8")
    assert pinfold("run", *LOCAL, "--model", f"replay:{recording}", "again").out == "1024\n"


def test_config_show_names_the_origin_of_each_value(pinfold: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_RUN_MAX_STEPS", "7")
    shown = pinfold("config", "show", "--origin").out
    assert "run.max_steps = 7" in shown
    assert "# PINFOLD_RUN_MAX_STEPS" in shown


def test_an_ephemeral_run_leaves_nothing(pinfold: Any, script: Any, tmp_path: Path) -> None:
    assert pinfold("run", *LOCAL, "--ephemeral", "--model", script({"text": "gone"}), "go").out == "gone\n"
    assert not list((tmp_path / "xdg" / "data").rglob("*.sqlite"))


def test_ctrl_c_stops_the_turn_and_says_how_to_go_on(start: Any, script: Any, cell: Cell) -> None:
    model = script(cell("print('begun', flush=True)\nwhile True: pass"), {"text": "never"})
    running = start("run", *LOCAL, "--json", "--model", model, "go")
    while json.loads(running.stdout.readline())["kind"] != "ActionStarted":
        pass
    os.kill(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=200)
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert (running.returncode, kinds) == (130, ["ActionFinished", "TurnInterrupted"])
    assert "pinfold resume s_" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "--sandbox", "unsafe-local", "--model", "gtp-9", "x"), "no model is called 'gtp-9'"),
        (("run", "--sandbox", "nowhere", "--model", "scripted:/dev/null", "x"), "no sandbox 'nowhere'"),
        (("run", "--workspace", "/does/not/exist", "--model", "scripted:x", "x"), "does not exist"),
        (("resume", "s_nope"), "there is no session 's_nope'"),
    ],
)
def test_bad_input_gets_one_clear_line_and_exit_2(pinfold: Any, args: tuple[str, ...], words: str) -> None:
    done = pinfold(*args)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err


async def test_an_agent_calls_a_tool_and_counts_its_tokens(workspace: Path, script: Any) -> None:
    @tool(effect="pure")
    def fx(amount: float, to: str = "EUR") -> str:
        """Convert dollars."""
        return f"{amount / 2} {to}"

    model = script(
        {"calls": [{"tool": "fx", "args": {"amount": 8}}], "usage": {"input_tokens": 5, "output_tokens": 1}},
        {"expect": "4.0 EUR", "text": "four euros", "usage": {"input_tokens": 7, "output_tokens": 2}},
    )
    tracker = TokenTracker(name="report")
    async with Agent(model=model, workspace=workspace, tools=[fx], sandbox="unsafe-local") as agent:
        agent.add_callback(tracker)
        result = await agent.run("eight dollars in euros?")
    assert (result.text, result.usage.total) == ("four euros", 15)
    assert tracker.summary().startswith("report: 2 calls, 12 tokens in, 3 out")
