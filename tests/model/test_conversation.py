"""What every server is sent, and how an answer is told apart from the reasoning in it: laws."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.model_requests import asking, assistant, tool, user

from pinfold.events import AssistantMessage, Message, Thought, ToolMessage, UserMessage, plain_json
from pinfold.model.wire.conversation import conversation
from pinfold.model.wire.payload import sendable
from pinfold.model.wire.reply_assembler import ReplyText

pytestmark = pytest.mark.unit

TEXTS = st.sampled_from(["", " ", "x", "y\n", "\ud800", "a\0b"])
IDS = st.sampled_from(["a_1", "a_2", "a_3", "a_4"])
CALLS = st.lists(IDS, max_size=2, unique=True).map(lambda ids: [(id_, "python", {"code": id_}) for id_ in ids])
MESSAGES = st.lists(
    TEXTS.map(user) | st.builds(assistant, TEXTS, CALLS, in_text=st.booleans()) | st.builds(tool, IDS, TEXTS),
    max_size=9,
)


@given(MESSAGES, st.booleans())
def test_every_answer_stands_right_after_its_call(messages: Sequence[Message], native: bool) -> None:
    sent = conversation(asking(*messages).messages, native=native)
    waiting: list[str] = []
    for message in sent:
        if isinstance(message, ToolMessage):
            assert waiting.pop(0) == message.id
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.calls]
    assert not waiting
    assert native or not any(isinstance(message, ToolMessage) for message in sent)


@given(MESSAGES, st.booleans())
def test_no_message_is_empty_and_the_user_never_speaks_twice_in_a_row(
    messages: Sequence[Message], native: bool
) -> None:
    sent = conversation(asking(*messages).messages, native=native)
    for message in sent:
        assert message.text.strip() or (isinstance(message, AssistantMessage) and message.calls)
    assert not any(
        isinstance(first, UserMessage) and isinstance(second, UserMessage) for first, second in pairwise(sent)
    )


@given(MESSAGES)
def test_a_conversation_that_goes_on_keeps_what_was_sent(messages: Sequence[Message]) -> None:
    """So that a server's cache of the prompt stays good. Only the last message may still grow."""
    settled = [*messages, assistant("said")]
    before = conversation(asking(*settled).messages, native=True)
    after = conversation(asking(*settled, user("more"), assistant("ok")).messages, native=True)
    assert after[: len(before)] == before


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_sent_can_be_read_everywhere(value: object) -> None:
    text = plain_json(sendable(value))
    assert "\\u0000" not in text.replace("\\\\", "")
    text.encode("utf-8")


def test_halves_of_a_character_become_one_again() -> None:
    assert sendable({"a": ["\ud83d\ude00", "\ud83d", "\0"]}) == {"a": ["😀", "\ufffd", "\ufffd"]}


def heard(pieces: Sequence[str]) -> tuple[str, str]:
    reply_text = ReplyText()
    shown = [piece for text in pieces for piece in reply_text.say(text)] + reply_text.end()
    assert "".join(piece for piece in shown if isinstance(piece, str)) == reply_text.text
    assert "".join(piece.text for piece in shown if isinstance(piece, Thought)) == reply_text.thoughts
    assert all(piece if isinstance(piece, str) else piece.text for piece in shown)
    return reply_text.text, reply_text.thoughts


ANSWERS = st.lists(st.sampled_from(["<think>", "</think>", "<", "<thi", "</th", " ", "\n", "x", "yy"])).map("".join)


@given(ANSWERS, st.lists(st.integers(0, 40)))
def test_where_an_answer_is_cut_into_pieces_changes_nothing(text: str, places: list[int]) -> None:
    cuts = sorted({0, len(text), *(min(place, len(text)) for place in places)})
    assert heard([text[start:end] for start, end in pairwise(cuts)]) == heard([text])


@pytest.mark.parametrize(
    ("text", "answer", "thoughts"),
    [
        ("<think>a</think>\n\nb", "b", "a"),
        (" <think></think>b", "b", ""),
        ("<think>never closed", "", "never closed"),
        ("<think>a</think>b <think>c</think>", "b <think>c</think>", "a"),
        ("b <think>c</think>", "b <think>c</think>", ""),
        ("<thin", "<thin", ""),
        ("<think>a</thin", "", "a</thin"),
        ("  x", "  x", ""),
    ],
)
def test_only_what_stands_at_the_beginning_is_reasoning(text: str, answer: str, thoughts: str) -> None:
    assert heard([text]) == (answer, thoughts)


def test_the_room_loads_no_http_library_before_a_model_is_asked() -> None:
    rooms = "pinfold.model, pinfold.model.wire.openai, pinfold.model.wire.ollama"
    program = f"import sys, {rooms}; print(sorted({{'httpx2', 'httpcore2', 'h11', 'ssl'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
