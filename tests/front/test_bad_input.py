"""What a user gets for a mistake: one clear line, the right exit code, nothing lost, no traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration
LOCAL = ("--sandbox", "unsafe-local")
Pinfold = Callable[..., Any]


def assert_one_line(done: Any, code: int, *words: str) -> None:
    assert (done.code, done.out) == (code, ""), done
    assert all(word in done.err for word in words), done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1, done.err


def test_a_script_that_is_not_json_names_file_and_line(pinfold: Pinfold, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "fine"}\n{"text": \n')
    assert_one_line(pinfold("run", *LOCAL, "--model", f"scripted:{bad}", "x"), 2, "bad.jsonl, line 2", "not JSON")


def test_a_script_with_an_unknown_key_says_which(pinfold: Pinfold, script: Any) -> None:
    done = pinfold("run", *LOCAL, "--model", script({"txt": "typo"}), "x")
    assert_one_line(done, 2, "line 1", "unknown field `txt`")


def test_a_script_that_is_missing_says_so(pinfold: Pinfold) -> None:
    assert_one_line(pinfold("run", *LOCAL, "--model", "scripted:/no/such", "x"), 2, "/no/such", "No such file")


def test_an_expectation_that_does_not_hold_fails_the_turn_loudly(pinfold: Pinfold, script: Any) -> None:
    done = pinfold("run", *LOCAL, "-q", "--model", script({"expect": "a heron", "text": "no"}), "x")
    assert (done.code, done.out) == (1, "")
    assert "should contain 'a heron'" in done.err


@pytest.mark.parametrize("folder", ["/", "~"])
def test_home_and_root_named_as_workspace_are_refused(
    pinfold: Pinfold, script: Any, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    named = str(tmp_path) if folder == "~" else folder
    done = pinfold("run", *LOCAL, "--workspace", named, "--model", script({"text": "x"}), "x")
    assert_one_line(done, 2, "cannot be a workspace", "name a folder inside it")


def test_standing_in_home_uses_a_scratch_folder_and_says_so(
    pinfold: Pinfold, script: Any, cell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    model = script(cell("open('made.txt', 'w').close()\nimport os\nprint(os.getcwd())"), {"text": "done"})
    done = pinfold("run", *LOCAL, "--model", model, "x", cwd=home)
    assert (done.code, done.out) == (0, "done\n")
    assert "holds far more than one task; using" in done.err
    assert list(home.rglob("made.txt")) == []


def test_a_workspace_with_pinfolds_own_files_in_it_is_refused(pinfold: Pinfold, script: Any, tmp_path: Path) -> None:
    pinfold("sessions")
    done = pinfold("run", *LOCAL, "--workspace", str(tmp_path / "xdg"), "--model", script({"text": "x"}), "x")
    assert_one_line(done, 2, "Pinfold's own files are in")


def test_a_data_folder_that_cannot_be_made_is_named(
    pinfold: Pinfold, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("XDG_DATA_HOME", str(blocked / "data"))
    done = pinfold("run", *LOCAL, "--model", script({"text": "x"}), "x")
    assert_one_line(done, 2, str(blocked), "XDG_DATA_HOME")


def test_a_broken_configuration_is_named(pinfold: Pinfold, script: Any, tmp_path: Path) -> None:
    path = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[run]\nmax_steps = 'x'\n")
    assert_one_line(pinfold("run", *LOCAL, "--model", script({"text": "x"}), "x"), 2, str(path), "run.max_steps")


@pytest.mark.parametrize("content", [b"", b"no zip, no json", b"PK\x03\x04broken", b'{"kind": "Noticed"}\n', b"[]\n"])
def test_a_broken_bundle_is_refused_and_leaves_no_session(pinfold: Pinfold, tmp_path: Path, content: bytes) -> None:
    bundle = tmp_path / "bad.pinfold"
    bundle.write_bytes(content)
    assert_one_line(pinfold("import", str(bundle)), 2, str(bundle))
    assert pinfold("sessions", "--json").out == ""


def test_no_model_at_all_says_how_to_name_one(pinfold: Pinfold) -> None:
    assert_one_line(pinfold("run", *LOCAL, "hello"), 2, "no model is configured", "--model")


def test_with_no_sandbox_named_code_runs_isolated(pinfold: Pinfold, script: Any, cell: Any) -> None:
    outside = "import os; print('uid', os.getuid(), os.path.exists('/var/log'), os.path.exists('/home'))"
    model = script(cell(outside), {"expect": "uid 1000 False False", "text": "shut in"})
    done = pinfold("run", "--model", model, "hello")
    assert (done.code, done.out) == (0, "shut in\n")


def test_a_folder_of_data_with_its_slash_and_alone_is_all_of_the_data(pinfold: Pinfold, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "cars.csv").write_text("a,b\n")
    listed = "import os; sorted(os.listdir('/mnt/datasets'))"
    for data, seen in (
        ([f"{folder}/"], "['cars.csv']\n"),
        ([str(folder)], "['tables']\n"),
        ([f"mine={folder}/"], "['mine']\n"),
        ([f"{folder}/", f"{folder}/cars.csv"], "['cars.csv', 'tables']\n"),
    ):
        flags = [word for one in data for word in ("--data", one)]
        assert pinfold("exec", *flags, "-c", listed).out == seen


def test_data_is_mounted_and_stays_with_the_session(pinfold: Pinfold, script: Any, cell: Any, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("7,8,9")
    read = "print(open('/mnt/datasets/sales.csv').read())"
    model = script(cell(read), {"expect": "7,8,9", "text": "one"}, cell(read), {"expect": "7,8,9", "text": "two"})
    assert pinfold("run", "--data", str(tmp_path / "sales.csv"), "--model", model, "go").out == "one\n"
    assert pinfold("resume", "last", "again").out == "two\n"
    missing = pinfold("run", "--data", "/no/such/file", "--model", model, "go")
    assert_one_line(missing, 2, "/no/such/file does not exist")
    assert_one_line(
        pinfold("run", *LOCAL, "--data", str(tmp_path / "sales.csv"), "--model", model, "go"), 2, "cannot mount data"
    )


@pytest.mark.parametrize(
    "args",
    [("run",), ("exec",), ("exec", "a.py", "-c", "1"), ("exec", "/no/such/file.py"), ("frobnicate",), ("rum", "x")],
)
def test_wrong_usage_exits_with_2_and_points_at_the_help(pinfold: Pinfold, args: tuple[str, ...]) -> None:
    assert_one_line(pinfold(*args), 2, "pinfold: ", "--help")


def test_debug_shows_the_traceback(pinfold: Pinfold) -> None:
    assert "Traceback" in pinfold("--debug", "resume", "s_nope").err


def test_resume_of_a_finished_session_without_a_prompt_says_what_to_give(pinfold: Pinfold, script: Any) -> None:
    pinfold("run", *LOCAL, "--model", script({"text": "x"}), "hello")
    assert_one_line(pinfold("resume", "last"), 2, "no interrupted turn", "PROMPT")


def test_a_damaged_log_is_reported_repaired_and_goes_on(pinfold: Pinfold, script: Any, tmp_path: Path) -> None:
    model = script({"text": "a heron on the wall"}, {"text": "two"})
    pinfold("run", *LOCAL, "--model", model, "hello")
    (store,) = (tmp_path / "xdg" / "data").rglob("log.sqlite")
    data = store.read_bytes()
    assert data.count(b"a heron on the wall") >= 1
    store.write_bytes(data.replace(b"a heron on the wall", b"A heron on the wall"))
    shown = pinfold("sessions", "show", "last")
    assert (shown.code, "damaged and unreadable" in shown.err) == (0, True)
    done = pinfold("resume", "last", "and?")
    # The reply that was lost is no longer known to have been given, so the script gives it again.
    assert (done.code, done.out) == (0, "a heron on the wall\n")
    assert "The log was damaged" in done.err
    assert "damaged" not in pinfold("export", "last", "--to", "jsonl").err
    assert len(list(store.parent.glob("log.damaged-*.sqlite"))) == 1


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", ">/dev/full"])
def test_a_missing_or_full_stream_gives_no_traceback(
    redirection: str, script: Any, workspace: Path, tmp_path: Path
) -> None:
    prompt = "" if redirection == "<&-" else "hello"
    line = (
        f"{sys.executable} -m pinfold run {' '.join(LOCAL)} -q --model {script({'text': 'x'})} {prompt} {redirection}"
    )
    done = subprocess.run(["sh", "-c", line], cwd=workspace, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "please report" not in done.stderr
    assert done.returncode == {"<&-": 2, ">/dev/full": 1}.get(redirection, done.returncode)


def test_a_refused_start_leaves_no_session(pinfold: Pinfold, script: Any) -> None:
    pinfold("run", "--sandbox", "nowhere", "--model", script({"text": "x"}), "hello")
    pinfold("run", *LOCAL, "--model", "nope:x", "hello")
    assert pinfold("sessions", "--json").out == ""


def test_an_imported_session_chooses_nothing_and_starts_nothing(
    pinfold: Pinfold, tmp_path: Path, workspace: Path, script: Any
) -> None:
    made = tmp_path / "made-by-a-stranger"
    call = {"id": "a_1", "tool": "python", "args": {"code": f"open({str(made)!r}, 'w')"}}
    events = [
        {
            "kind": "SessionOpened",
            "version": "0",
            "workspace": "/",
            "model": "m",
            "mode": "full",
            "sandbox": "unsafe-local",
        },
        {"kind": "UserSpoke", "turn": "t_1", "text": "hello"},
        {"kind": "ModelReplied", "turn": "t_1", "model": "m", "text": "", "actions": [call]},
    ]
    stranger = tmp_path / "stranger.jsonl"
    stranger.write_text(
        "".join(
            json.dumps({"seq": n, "session": "s_aaaaaaaaaaaa", "at": "2026-01-01T00:00:00Z", **event}) + "\n"
            for n, event in enumerate(events, start=1)
        )
    )
    session = pinfold("import", str(stranger)).out.strip()
    copy = pinfold("fork", session).out.strip()
    for one in (session, copy):
        refused = pinfold("resume", one)
        assert_one_line(refused, 2, "this session has no model yet")
        done = pinfold("resume", one, *LOCAL, "--json", "--model", script({"text": "mine"}), "go")
        assert (done.code, done.events[-1]["text"]) == (0, "mine")
        whole = pinfold("export", one, "--to", "jsonl")
        assert [event["outcome"] for event in whole.of_kind("ActionFinished")] == ["not_run"]
        assert done.of_kind("SessionOpened")[0]["workspace"] == str(workspace)
        assert not made.exists()
    # What was opened here has a place of its own, and so has a copy of it.
    ours = pinfold("fork", session).out.strip()
    other = tmp_path / "other"
    other.mkdir()
    again = pinfold("exec", "-s", ours, "-c", "import os; print(os.getcwd())", cwd=other)
    assert again.out.strip() == str(workspace)


def test_several_at_once_make_one_named_session(start: Any, pinfold: Pinfold) -> None:
    running = [start("exec", *LOCAL, "-s", "shared", "-c", f"print({n})") for n in range(4)]
    said = sorted(process.communicate(timeout=200) for process in running)
    assert [out for out, _ in said] == ["0\n", "1\n", "2\n", "3\n"], said
    assert len(pinfold("sessions", "--json").out.splitlines()) == 1


def test_ctrl_c_stops_only_what_it_was_meant_for(start: Any, pinfold: Pinfold) -> None:
    first = start(
        "exec", *LOCAL, "-s", "q", "--json", "-c", "import time\nfor _ in range(300): time.sleep(0.01)\nprint('done')"
    )
    while json.loads(first.stdout.readline())["kind"] != "ActionStarted":
        pass
    second = start("exec", "-s", "q", "-c", "print('second')")
    # Its own Ctrl-C can only be meant for its own cell, which waits behind the first.
    second.send_signal(signal.SIGINT)
    assert second.wait(timeout=200) in (130, -signal.SIGINT)
    assert "done" in first.communicate(timeout=200)[0]
    assert first.returncode == 0


def test_a_projects_limits_hold_on_resume(pinfold: Pinfold, workspace: Path, script: Any, cell: Any) -> None:
    (workspace / "pinfold.toml").write_text("[run]\nmax_steps = 1\n")
    assert pinfold("trust", "--yes").code == 0
    model = script({"text": "one"}, cell("1"), cell("2"), {"text": "never"})
    assert pinfold("run", *LOCAL, "--model", model, "go").out == "one\n"
    done = pinfold("resume", "last", "go")
    assert (done.code, "stopped after 1 steps" in done.err) == (1, True)


def test_the_operator_log_follows_log_level(pinfold: Pinfold, script: Any, tmp_path: Path) -> None:
    pinfold("run", *LOCAL, "--model", script({"text": "x"}), "hello")
    assert not list((tmp_path / "xdg" / "state").rglob("pinfold.log"))
    pinfold("--log-level", "info", "run", *LOCAL, "--model", script({"text": "x"}), "hello")
    (written,) = (tmp_path / "xdg" / "state").rglob("pinfold.log")
    assert "opened: model 'scripted:" in written.read_text(encoding="utf-8")
