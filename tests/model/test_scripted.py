"""`scripted:` and `replay:`: the public format, line by line, and the place in it that a session remembers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot

from pinfold.events import (
    AssistantMessage,
    Call,
    Entry,
    Message,
    ModelFailed,
    ModelReplied,
    Reply,
    Request,
    RequestFailed,
    SessionId,
    ToolMessage,
    TurnId,
    Usage,
    UserMessage,
)
from pinfold.model import BadScript, KeptReply, ScriptedModel, UnknownModel, full_name, model_named, record
from pinfold.model.layers import Model
from pinfold.model.scripted import ReplayModel

pytestmark = pytest.mark.unit

HELLO = Request(system="Be brief.", messages=(UserMessage(text="hello"),))


def script(tmp_path: Path, *lines: dict[str, Any] | str, name: str = "script.jsonl") -> Path:
    path = tmp_path / name
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), encoding="utf-8"
    )
    return path


async def pieces(model: Model, request: Request = HELLO) -> list[object]:
    return [piece async for piece in model.stream(request)]


async def reply(model: Model, request: Request = HELLO) -> Reply:
    *_, last = await pieces(model, request)
    assert isinstance(last, Reply)
    return last


async def texts(model: Model, count: int) -> list[str]:
    return [(await reply(model)).text for _ in range(count)]


async def served(model: ScriptedModel, count: int) -> list[str]:
    return [(await reply(model)).request_id for _ in range(count)]


@pytest.mark.installed
async def test_replies_come_in_order_then_the_script_ends(tmp_path: Path) -> None:
    path = script(tmp_path, {"text": "one"}, {"text": "two"})
    model = model_named(f"scripted:{path}")
    assert model.name == f"scripted:{path}"
    assert await texts(model, 4) == ["one", "two", "(end of script)", "(end of script)"]


async def test_a_line_can_hold_everything(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        {
            "text": "Look.",
            "calls": [{"tool": "python", "args": {"code": "1"}}, {"tool": "now"}],
            "usage": {"input_tokens": 3, "output_tokens": 2},
        },
    )
    said = await reply(ScriptedModel.from_file(path))
    first, second = said.calls
    assert said == Reply(
        text="Look.",
        calls=(Call(id=first.id, tool="python", args={"code": "1"}), Call(id=second.id, tool="now", args={})),
        usage=Usage(input_tokens=3, output_tokens=2),
        request_id=said.request_id,
    )
    assert first.id != second.id


async def test_every_key_is_optional_and_blank_lines_are_nothing(tmp_path: Path) -> None:
    model = ScriptedModel.from_file(script(tmp_path, "", {}, "   ", {"text": "x"}))
    assert await texts(model, 2) == ["", "x"]


async def test_text_comes_in_pieces_that_make_the_whole(tmp_path: Path) -> None:
    text = "A reply longer than one piece, with an emoji 👩‍🔬 and\u2028a line end.\n"
    *parts, last = await pieces(ScriptedModel.from_file(script(tmp_path, {"text": text})))
    assert len(parts) > 1
    assert "".join(map(str, parts)) == text
    assert isinstance(last, Reply)
    assert last.text == text


async def test_an_error_line_fails_that_request_and_no_other(tmp_path: Path) -> None:
    model = ScriptedModel.from_file(
        script(tmp_path, {"error": "overloaded", "status": 529}, {"error": "broken"}, {"text": "fine"})
    )
    with pytest.raises(RequestFailed, match=r"^overloaded$") as caught:
        await reply(model)
    assert (caught.value.status, caught.value.retryable) == (529, True)
    with pytest.raises(RequestFailed, match=r"^broken$") as caught:
        await reply(model)
    assert caught.value.status is None
    assert await texts(model, 1) == ["fine"]


async def test_a_delay_is_waited_for_and_an_interrupted_request_uses_no_line_up(tmp_path: Path) -> None:
    model = ScriptedModel.from_file(script(tmp_path, {"text": "late", "delay_s": 3600}, {"text": "next"}))
    for _ in range(2):
        with anyio.move_on_after(0.01) as scope:
            await reply(model)
        assert scope.cancelled_caught


@pytest.mark.parametrize("words", ["hello", "Be brief.", "thinking", '{"code":"6*7"}', "42"])
async def test_what_is_expected_may_be_anywhere_in_the_context(words: str, tmp_path: Path) -> None:
    messages: tuple[Message, ...] = (
        UserMessage(text="hello"),
        AssistantMessage(
            text="thinking",
            calls=(Call(id="a", tool="python", args={"code": "6*7"}),),  # pyright: ignore[reportArgumentType]
        ),
        ToolMessage(id="a", text="42"),  # pyright: ignore[reportArgumentType]
    )
    model = ScriptedModel.from_file(script(tmp_path, {"text": "ok", "expect": words}))
    assert (await reply(model, Request(system="Be brief.", messages=messages))).text == "ok"


async def test_what_is_expected_and_missing_fails_loudly(tmp_path: Path) -> None:
    path = script(tmp_path, {"text": "ok"}, {"text": "ok", "expect": "goodbye"})
    model = ScriptedModel.from_file(path)
    await reply(model)
    with pytest.raises(BadScript) as caught:
        await reply(model)
    assert str(caught.value) == (
        f"scripted:{path}, reply 2: the context should contain 'goodbye' but does not; it ends with 'Be brief.\\nhello'"
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON: "),
        ('{"txt": "x"}', "Object contains unknown field `txt`"),
        ('{"calls": [{"name": "x"}]}', r"Object contains unknown field `name` - at `\$\.calls\[0\]`"),
        ('{"calls": [{}]}', r"Object missing required field `tool` - at `\$\.calls"),
        ('{"text": 3}', r"Expected `str`, got `int` - at `\$\.text`"),
        ('{"delay_s": NaN}', "not JSON: NaN is not JSON"),
        ('["text"]', "Expected `object`, got `array`"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(line: str, words: str, tmp_path: Path) -> None:
    path = script(tmp_path, {"text": "fine"}, "", line)
    with pytest.raises(BadScript, match=f"^{path}, line 3: {words}"):
        ScriptedModel.from_file(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadScript, match=r"missing\.jsonl cannot be read: No such file or directory$"):
        model_named(f"scripted:{tmp_path}/missing.jsonl")
    (tmp_path / "bytes").write_bytes(b'{"text": "\xff"}')
    with pytest.raises(BadScript, match="bytes is not UTF-8 text: invalid start byte at byte 10"):
        model_named(f"scripted:{tmp_path}/bytes")


LINES: tuple[dict[str, Any], ...] = ({"text": "one"}, {"text": "two"}, {"text": "three"})


async def test_a_resumed_session_goes_on_where_it_was(tmp_path: Path) -> None:
    path = script(tmp_path, *LINES)
    marks = await served(ScriptedModel.from_file(path), 2)
    assert await texts(ScriptedModel.from_file(path, marks), 2) == ["three", "(end of script)"]


async def test_a_script_that_grew_goes_on_where_it_was(tmp_path: Path) -> None:
    marks = await served(ScriptedModel.from_file(script(tmp_path, *LINES)), 3)
    grown = script(tmp_path, *LINES, {"text": "four"})
    assert await texts(ScriptedModel.from_file(grown, marks), 2) == ["four", "(end of script)"]


async def test_a_script_that_had_ended_does_not_begin_again(tmp_path: Path) -> None:
    path = script(tmp_path, *LINES)
    marks = await served(ScriptedModel.from_file(path), 5)
    assert await texts(ScriptedModel.from_file(path, marks), 1) == ["(end of script)"]
    grown = script(tmp_path, *LINES, {"text": "four"})
    assert await texts(ScriptedModel.from_file(grown, marks), 2) == ["four", "(end of script)"]


async def test_a_rewritten_script_begins_at_its_beginning(tmp_path: Path) -> None:
    marks = await served(ScriptedModel.from_file(script(tmp_path, *LINES)), 2)
    other = script(tmp_path, {"text": "uno"}, *LINES[1:])
    assert await texts(ScriptedModel.from_file(other, marks), 1) == ["uno"]
    shorter = script(tmp_path, LINES[0])
    assert await texts(ScriptedModel.from_file(shorter, marks), 1) == ["one"]


async def test_a_failure_that_was_served_counts(tmp_path: Path) -> None:
    path = script(tmp_path, {"error": "busy"}, *LINES)
    with pytest.raises(RequestFailed) as caught:
        await reply(ScriptedModel.from_file(path))
    assert await texts(ScriptedModel.from_file(path, [caught.value.request_id]), 1) == ["one"]


async def test_a_recording_that_runs_out_is_an_error(tmp_path: Path) -> None:
    path = script(tmp_path, {"text": "one", "model": "gpt"})
    model = model_named(f"replay:{path}")
    assert isinstance(model, ReplayModel)
    assert await texts(model, 1) == ["one"]
    with pytest.raises(BadScript, match=f"^replay:{path} has no reply left: 1 were recorded$"):
        await reply(model)


def test_an_empty_recording_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadScript, match="has no recorded replies"):
        model_named(f"replay:{script(tmp_path)}")


def at(events: Sequence[ModelReplied | ModelFailed]) -> list[Entry]:
    return [Entry(seq=number, session=SessionId("s"), at="", event=event) for number, event in enumerate(events, 1)]


async def test_a_recording_replays_to_the_same_replies(tmp_path: Path) -> None:
    turn = TurnId("t")
    call = Call(id="a", tool="python", args={"code": "\ud800 \0", "n": [10**40]})  # pyright: ignore[reportArgumentType]
    said = [
        ModelReplied(turn=turn, model="m", text="Look.", actions=(call,), usage=Usage(input_tokens=7), cost=0.5),
        ModelFailed(turn=turn, model="m", error="busy", status=529, retry_in_s=1.0),
        ModelReplied(turn=turn, model="m", text="Done.\u2028\x85"),
    ]
    path = script(tmp_path, *record(at(said)), name="recording.jsonl")
    model = ReplayModel.from_file(path)
    first = await reply(model)
    assert (first.text, first.usage, first.cost) == ("Look.", Usage(input_tokens=7), 0.5)
    assert [(call.tool, call.args) for call in first.calls] == [(call.tool, call.args)]
    with pytest.raises(RequestFailed, match=r"^busy$") as caught:
        await reply(model)
    assert caught.value.status == 529
    assert (await reply(model)).text == "Done.\u2028\x85"


def test_a_recording_of_a_recording_is_the_same() -> None:
    kept = KeptReply(text="x", usage=Usage(output_tokens=1), model="m")
    event = ModelReplied(turn=TurnId("t"), model="m", text=kept.text, usage=kept.usage)
    assert list(record(at([event]))) == snapshot(['{"text":"x","model":"m","usage":{"output_tokens":1}}'])


def test_a_full_name_means_the_same_from_every_folder() -> None:
    assert full_name("scripted:a.jsonl") == f"scripted:{Path.cwd() / 'a.jsonl'}"
    assert full_name("replay:/x/a.jsonl") == "replay:/x/a.jsonl"
    assert [full_name(name) for name in ("", "gpt-9", "scripted:", "openai:x")] == [
        "",
        "gpt-9",
        "scripted:",
        "openai:x",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "no model is configured; name one with --model, e.g. --model builtin"),
        ("scripted", "no model is called 'scripted'; did you mean scripted:FILE?"),
        ("scripted:", "no model is called 'scripted:'; did you mean scripted:FILE?"),
        ("script:x", "no model is called 'script:x'; did you mean scripted:FILE?"),
        ("relpay:x", "no model is called 'relpay:x'; did you mean replay:FILE?"),
    ],
)
def test_an_unknown_model_is_named_with_the_nearest(name: str, words: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        model_named(name)
    assert str(caught.value) == words
    assert caught.value.exit_code == 2
