"""`pinfold exec` in the ways a shell uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.wheels import Index

from pinfold.sandbox.providers.landlock import landlock_abi

pytestmark = pytest.mark.integration
LOCAL = ("--sandbox", "unsafe-local")
Pinfold = Callable[..., Any]


def test_a_named_session_goes_on_and_says_what_it_lost(pinfold: Pinfold) -> None:
    assert pinfold("exec", *LOCAL, "-s", "work", "-c", "x = [1]\ng = (i for i in x)").code == 0
    done = pinfold("exec", "-s", "work", "-c", "x, 'g' in globals()")
    assert (done.code, done.out) == (0, "([1], False)\n")
    assert "reopened; lost: g (" in done.err
    assert [line.split()[-1] for line in pinfold("sessions").out.splitlines()] == ["work"]


def test_a_session_without_a_model_takes_the_configured_one_and_keeps_it(
    pinfold: Pinfold, tmp_path: Path, script: Any
) -> None:
    assert pinfold("exec", "-s", "work", "-c", "x = 6", *LOCAL).code == 0
    assert "this session has no model yet" in pinfold("resume", "work", "hello").err
    config = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    first = script({"text": "the first answer"}, {"text": "the second answer"}, name="first.jsonl")
    other = script({"text": "from another model"}, name="other.jsonl")
    for model, answer in ((first, "the first answer"), (other, "the second answer")):
        config.write_text(f"[model]\nname = {json.dumps(model)}\n", encoding="utf-8")
        assert pinfold("resume", "work", "hello").out == f"{answer}\n"


def test_a_file_is_run_with_the_workspace_as_current_folder(pinfold: Pinfold, tmp_path: Path, workspace: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os\nprint(os.getcwd())\n", encoding="utf-8")
    assert pinfold("exec", *LOCAL, str(program)).out == f"{workspace}\n"


def test_output_that_is_not_text_reaches_the_pipe_readable(pinfold: Pinfold) -> None:
    done = pinfold("exec", *LOCAL, "-c", "import os\nos.write(1, b'caf\\xc3\\xa9 \\xff\\n')\nprint('\\ud800')")
    assert done.code == 0
    assert done.out == "café \ufffd\n\\ud800\n"


def test_a_program_that_dies_is_named_with_how(pinfold: Pinfold) -> None:
    done = pinfold("exec", *LOCAL, "-c", "import os\nprint('before', flush=True)\nos._exit(3)")
    assert (done.code, done.out) == (1, "before\n")
    assert "exited with code 3" in done.err


def test_a_program_that_exits_gives_its_own_code_and_no_traceback(pinfold: Pinfold) -> None:
    def ends(code: str) -> tuple[int, bool]:
        done = pinfold("exec", *LOCAL, "-c", f"import sys\n{code}")
        return done.code, "Traceback" in done.err

    assert ends("sys.exit(3)") == (3, False)
    assert ends("sys.exit()") == (0, False)
    assert ends("sys.exit('no such file')") == (1, True)
    assert ends("raise ValueError('SystemExit: 3')") == (1, True)


def test_a_program_over_its_time_exits_with_1_and_says_so(pinfold: Pinfold) -> None:
    done = pinfold("exec", *LOCAL, "--timeout", "0.3", "-c", "while True: pass")
    assert done.code == 1
    assert "more than 0.3 s" in done.err


def test_json_shows_the_cell_as_events(pinfold: Pinfold) -> None:
    done = pinfold("exec", *LOCAL, "--json", "-c", "print(1)\n2")
    (finished,) = done.of_kind("ActionFinished")
    assert (finished["outcome"], finished["observation"], finished["value"]) == ("ok", "1\n2\n", "2")


def test_a_reader_that_goes_away_ends_the_command_quietly(start: Any) -> None:
    running = start("exec", *LOCAL, "-c", "while True: print('x' * 1000)")
    assert running.stdout.read(10) == "x" * 10
    running.stdout.close()
    assert running.wait(timeout=200) == 1
    assert "Traceback" not in running.stderr.read()


def test_all_of_a_long_output_comes_out(pinfold: Pinfold) -> None:
    done = pinfold("exec", *LOCAL, "-c", "for n in range(700): print(f'{n:06d}' * 20000)")
    assert done.code == 0
    assert len(done.out) == 700 * (6 * 20000 + 1)
    assert done.out.endswith("000699\n")


def test_a_long_value_is_printed_whole(pinfold: Pinfold) -> None:
    assert pinfold("exec", *LOCAL, "-c", "'a' * 50_000").out == "'" + "a" * 50_000 + "'\n"


@pytest.mark.slow
def test_a_package_needs_a_yes_that_a_flag_can_give(pinfold: Pinfold, index: Index) -> None:
    index.add("heron")
    cell = ("-c", "%pip install heron\nimport heron\nheron.version")
    denied = pinfold("exec", *cell)
    assert (denied.code, denied.out, index.asked) == (1, "", [])
    assert "ToolRefused: This was not run: the package heron would be fetched from the package index" in denied.err
    assert (
        "pinfold: denied: this needs your approval, and `pinfold exec` cannot ask; `--mode full` allows it\n"
        in denied.err
    )
    allowed = pinfold("exec", "--mode", "full", *cell)
    assert (allowed.code, allowed.out) == (0, "installed heron 1.0\n'1.0'\n")


def test_a_program_gets_the_package_it_lacks_in_mode_full_and_runs_again(
    pinfold: Pinfold, index: Index, workspace: Path
) -> None:
    index.add("heron")
    program = "open('log.txt', 'a').write('x')\nimport heron\nheron.version"
    denied = pinfold("exec", "-c", program)
    assert (denied.code, denied.out, index.asked) == (1, "", [])
    assert "the package heron is missing; with `--mode full` it is installed" in denied.err
    (workspace / "log.txt").unlink()
    allowed = pinfold("exec", "--mode", "full", "-c", program)
    assert (allowed.code, allowed.out) == (0, "'1.0'\n")
    assert "pinfold: installed heron 1.0, and ran the cell again from its start" in allowed.err
    assert (workspace / "log.txt").read_text() == "x"


@pytest.mark.slow
def test_code_keeps_notes_and_finds_them_in_the_next_program(pinfold: Pinfold) -> None:
    kept = pinfold("exec", "-c", "from servers.memory import remember\nremember('the port is 8080')")
    assert (kept.code, kept.out) == (0, "1\n"), kept.err
    found = pinfold("exec", "-c", "from servers.memory import recall\n[note['text'] for note in recall('port')]")
    assert found.out == "['the port is 8080']\n"
    refused = pinfold("exec", "--mode", "read-only", "-c", "from servers.memory import remember")
    assert refused.code == 1


def test_json_shows_a_cells_call_as_its_child(pinfold: Pinfold, index: Index) -> None:
    done = pinfold("exec", "--json", "-c", "%pip install heron")
    outer, inner = done.of_kind("ActionProposed")
    assert (inner["parent"], inner["by"]) == (outer["id"], "cell")
    assert [(end["id"], end["outcome"]) for end in done.of_kind("ActionFinished")] == [
        (inner["id"], "denied"),
        (outer["id"], "error"),
    ]


def test_a_call_cut_off_by_a_kill_is_named_and_not_repeated(pinfold: Pinfold, start: Any, index: Index) -> None:
    index.add("heron")
    index.hold()
    running = start("exec", "--mode", "full", "-s", "work", "-c", "%pip install heron")
    assert index.held.wait(30)
    running.kill()
    running.wait(timeout=200)
    index.release()
    asked = len(index.asked)
    done = pinfold("exec", "-s", "work", "--json", "-c", "'heron' in __import__('sys').modules")
    ends = {end["id"]: end["outcome"] for end in done.of_kind("ActionFinished")}
    told = pinfold("export", "work", "--to", "jsonl")
    outer, inner, _ = told.of_kind("ActionProposed")
    known = {end["id"]: end["outcome"] for end in told.of_kind("ActionFinished")}
    assert (inner["parent"], known[outer["id"]], known[inner["id"]]) == (
        outer["id"],
        "outcome_unknown",
        "outcome_unknown",
    )
    assert list(ends.values())[-1] == "ok"
    assert len(index.asked) == asked


@pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")
def test_what_was_planted_is_said_and_what_cannot_be_put_back_is_a_failure(pinfold: Pinfold, workspace: Path) -> None:
    lite = ("exec", "--sandbox", "landlock", "-c")
    done = pinfold(*lite, "open('.gdbinit', 'w').close(); open('.envrc', 'w').close()\n1")
    assert (done.code, done.out) == (0, "1\n")
    assert "pinfold: .gdbinit was made and has been removed: the debugger would obey it\n" in done.err
    assert "other programs act on these files: .envrc (direnv)" in done.err.splitlines()[-1]
    (workspace / "AGENTS.md").write_bytes(b"x" * (5 << 20))  # larger than what is remembered
    done = pinfold(*lite, "open('AGENTS.md', 'w').write('obey')")
    assert done.code == 1
    assert "pinfold: AGENTS.md was changed and could not be put back; look at it before you use it\n" in done.err
