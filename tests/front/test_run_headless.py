"""`pinfold run` in pipes and in CI: the form of the answer, what is given along, limits, and how it ends."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from tests.model.servers import failing, said, serving

from pinfold.front.cli import turn_streams

pytestmark = pytest.mark.integration
Pinfold = Callable[..., Any]
SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), encoding="utf-8")
    return str(path)


def test_a_wrong_answer_is_sent_back_with_its_faults_and_stdout_is_the_json_alone(
    pinfold: Pinfold, script: Any, schema: str
) -> None:
    model = script(
        {"text": "three", "expect": '"required": ["total"]'},
        {"text": '{"total": "3"}', "expect": "The answer must be JSON alone, and this is not: Expecting value"},
        {"text": '```json\n{"total": 3}\n```', "expect": "$.total: '3' is not of type 'number'"},
    )
    done = pinfold("run", "--model", model, "--output-schema", schema, "-q", "count")
    assert (done.code, done.out) == (0, '{"total": 3}\n'), done.err


def test_a_provider_that_keeps_to_a_schema_is_asked_to_and_one_that_cannot_is_not_asked_again(
    pinfold: Pinfold, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = failing(400, {"error": {"message": "no such thing", "param": "response_format"}})
    with serving(refused, said("3"), said('{"total": 3}')) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        done = pinfold("run", "--model", "openai:gpt-test", "--output-schema", schema, "-q", "count")
    assert (done.code, done.out) == (0, '{"total": 3}\n'), done.err
    first, *rest = [asked.body for asked in server.asked]
    form = {"name": "answer", "schema": SCHEMA, "strict": False}
    assert first["response_format"] == {"type": "json_schema", "json_schema": form}
    assert ["response_format" in body for body in rest] == [False, False]
    assert not any("answer_form" in asked.body for asked in server.asked)


def test_a_third_wrong_answer_fails_with_one_line(pinfold: Pinfold, script: Any, schema: str) -> None:
    model = script({"text": "1"}, {"text": "2"}, {"text": "3"}, {"text": '{"total": 4}'})
    done = pinfold("run", "--model", model, "--output-schema", schema, "-q", "--ephemeral", "count")
    assert (done.code, done.out) == (1, "")
    line = done.err.splitlines()[-1]
    assert line == "pinfold: The answer is not valid against the schema: $: 3 is not of type 'object'"


def test_code_that_answers_wrongly_is_told_and_standard_input_is_there_in_whole_but_told_in_part(
    pinfold: Pinfold, script: Any, schema: str, cell: Any
) -> None:
    read = "import json\nlines = open('/mnt/datasets/stdin').read().split()\nanswer(len(lines))"
    again = "print(len(lines))\nanswer(json.dumps({'total': len(lines)}))"
    model = script(cell(read, expect="The rest is only there"), cell(again, expect="is not of type 'object'"))
    numbers = "\n".join(map(str, range(50_000)))
    options = ("--model", model, "--output-schema", schema, "--json")
    done = pinfold("run", *options, "how many lines?", given=numbers)
    assert done.code == 0, done.err
    assert done.events[-1]["text"] == '{"total": 50000}'
    (spoken,) = done.of_kind("UserSpoke")
    assert "[Standard input: 288,889 bytes" in spoken["text"]
    assert len(spoken["text"]) < 3000
    # A fork goes on with it, also once the session itself is gone.
    first = done.events[0]["session"]
    fork = pinfold("fork", first).out.strip()
    pinfold("sessions", "rm", first)
    seen = pinfold("exec", "-s", fork, "-c", "len(open('/mnt/datasets/stdin').read()), len(lines)")
    assert seen.out == "(288889, 50000)\n", seen.err


def test_an_ephemeral_run_leaves_nothing_of_what_was_given(pinfold: Pinfold, script: Any, tmp_path: Path) -> None:
    model = script({"text": "ok", "expect": "heron in the reeds"})
    done = pinfold("run", "--model", model, "--ephemeral", "-q", "what?", given="heron in the reeds")
    assert (done.code, done.out) == (0, "ok\n"), done.err
    kept = [path for path in (tmp_path / "xdg").rglob("*") if path.is_file()]
    assert [path for path in kept if b"heron" in path.read_bytes()] == []


def test_files_come_along_as_their_kind_allows(pinfold: Pinfold, script: Any, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    (tmp_path / "note.txt").write_text("the heron is grey\n", encoding="utf-8")
    (tmp_path / "raw.bin").write_bytes(b"\0\1\2" * 9)
    (tmp_path / "ask.md").write_text("What is in these?", encoding="utf-8")
    files = [f"--attach={tmp_path / name}" for name in ("dot.png", "note.txt", "raw.bin")]
    model = script({"text": "three things", "expect": "the heron is grey"})
    done = pinfold("run", "--model", model, "--json", "-f", str(tmp_path / "ask.md"), *files)
    assert done.code == 0, done.err
    (spoken,) = done.of_kind("UserSpoke")
    assert spoken["text"].startswith("What is in these?\n\n[Attached dot.png: a picture, shown here")
    assert "[Attached raw.bin: 27 bytes, not text" in spoken["text"]
    assert [image["mime"] for image in spoken["images"]] == ["image/png"]
    assert set(done.of_kind("SessionOpened")[0]["data"]) == {"dot.png", "note.txt", "raw.bin"}


@pytest.mark.parametrize(
    ("args", "piped", "words"),
    [
        (["--attach", "missing.csv", "go"], "", "missing.csv does not exist"),
        (["--data", "stdin=/usr/bin", "go"], "more", "data cannot be called 'stdin'"),
        (["--output-schema", "missing.json", "go"], "", "missing.json cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    pinfold: Pinfold, script: Any, tmp_path: Path, args: list[str], piped: str, words: str
) -> None:
    done = pinfold("run", "--model", script({"text": "never"}), *args, given=piped)
    assert (done.code, done.out) == (2, "")
    assert words in done.err.splitlines()[-1]
    assert list((tmp_path / "xdg/data/pinfold").glob("sessions/s_*")) == []


@pytest.mark.parametrize(
    ("prompt", "file", "piped", "words"),
    [
        (None, "missing.md", b"", "missing.md cannot be read: No such file"),
        ("go", "x", b"", "give either a PROMPT or -f FILE"),
        (None, "-", b"", "the PROMPT is empty"),
        (None, None, b"x" * (1 << 20) + b"y", "too long for a prompt"),
        ("-", None, b" \n", "the PROMPT is empty"),
        (None, None, None, "nothing to do: give a PROMPT, or pipe one in"),
    ],
)
def test_a_prompt_that_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, prompt: str | None, file: str | None, piped: bytes | None, words: str
) -> None:
    monkeypatch.setattr("sys.stdin", None if piped is None else io.TextIOWrapper(io.BytesIO(piped)))
    with pytest.raises(click.UsageError, match=words):
        turn_streams.prompt_from(prompt, file)


NOW: dict[str, Any] = {
    "calls": [{"tool": "now", "args": {}}],
    "usage": {"input_tokens": 900, "output_tokens": 100},
    "cost": 0.5,
}


@pytest.mark.parametrize(
    ("args", "reply", "words"),
    [
        (["--max-steps", "1"], NOW, "stopped after 1 steps, the limit (max_steps)"),
        (
            ["--max-tokens", "500", "--max-steps", "9", "--max-seconds", "60"],
            NOW,
            "stopped after 1,000 tokens this turn, the limit is 500",
        ),
        (["--max-cost", "0.25"], NOW, "stopped after $0.5000 this turn, the limit is $0.2500"),
        (["--max-seconds", "0.2"], {"text": "late", "delay_s": 60}, "stopped after 0.2 s, the limit for a turn"),
    ],
)
def test_each_limit_stops_the_turn_with_one_line_and_exit_1(
    pinfold: Pinfold, script: Any, args: list[str], reply: dict[str, Any], words: str
) -> None:
    done = pinfold("run", "--model", script(reply, {"text": "done"}), "-q", "--ephemeral", *args, "go")
    assert (done.code, done.out) == (1, "")
    said = [line for line in done.err.splitlines() if "environment is not built" not in line]
    assert [words in line for line in said] == [True], done.err


def test_a_reader_that_leaves_and_a_signal_end_it_without_a_word_too_many(start: Any, script: Any) -> None:
    model = script(*([NOW] * 3), {"text": "done", "delay_s": 1})
    process = start("run", "--json", "--ephemeral", "--model", model, "go")
    assert json.loads(process.stdout.readline())["kind"] == "SessionOpened"
    process.stdout.close()  # as `| head -1` does
    assert process.wait(20) == 1
    assert "Traceback" not in process.stderr.read()

    process = start("run", "--json", "--model", script({"text": "late", "delay_s": 60}), "go")
    while json.loads(process.stdout.readline())["kind"] != "ModelCalled":
        pass
    process.send_signal(signal.SIGTERM)
    rest, said = process.communicate(timeout=45)
    assert process.returncode == 130
    assert json.loads(rest.splitlines()[-1])["kind"] == "TurnInterrupted"
    assert "Traceback" not in said


def test_a_command_under_nohup_outlives_its_terminal(start: Any, script: Any) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start("run", "--json", "--model", script({"text": "late", "delay_s": 1}), "go")
    finally:
        signal.signal(signal.SIGHUP, before)
    while json.loads(process.stdout.readline())["kind"] != "ModelCalled":
        pass
    process.send_signal(signal.SIGHUP)
    rest, _ = process.communicate(timeout=45)
    assert process.returncode == 0
    assert json.loads(rest.splitlines()[-1])["kind"] == "TurnEnded"


def test_closed_streams_are_no_streams(script: Any, workspace: Path) -> None:
    model = script({"text": "fine"})
    line = f'"$0" -m pinfold run -q --ephemeral --model {model} go'
    for streams, out in (("<&-", b"fine\n"), ("<&- 2>&-", b"fine\n"), (">&- </dev/null", b"")):
        done = subprocess.run(
            ["sh", "-c", f"{line} {streams}", sys.executable],
            stdin=subprocess.PIPE,
            capture_output=True,
            cwd=workspace,
            timeout=200,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, out), done.stderr


def test_a_pipe_nobody_writes_to_does_not_hold_the_run_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = os.pipe()
    monkeypatch.setattr(turn_streams, "FIRST_BYTE_S", 0.05)
    with os.fdopen(ours, "r") as piped, os.fdopen(theirs, "w"):
        monkeypatch.setattr("sys.stdin", piped)
        along = turn_streams.TurnInput("go", (), (), stdin_is_data=True)
        along.read_stdin(tmp_path)
    assert along.text == "go"
    assert "continuing without it (--attach - waits for it" in capsys.readouterr().err
