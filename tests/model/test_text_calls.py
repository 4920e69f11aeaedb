"""A model without tool calls in a conversation: what it is told, and what becomes of what it says."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.model.stub_model import Speaking

from pinfold.events import (
    ActionId,
    AssistantMessage,
    BlobId,
    Call,
    Image,
    Reply,
    Request,
    Thought,
    ToolMessage,
    ToolSchema,
    Usage,
    UserMessage,
)
from pinfold.model.protocol import Style, TextCallLayer, put_tools_in_prompt
from pinfold.model.protocol.text_calls import explain_tools
from pinfold.model.wire.conversation import conversation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.unit

PYTHON = ToolSchema(
    name="python",
    description="Run Python.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
READ_FILE = ToolSchema(
    name="read_file",
    description="Read a file.\n\nAll of it, or a part.",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "lines": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "mode": {"enum": ["text", "bytes"], "default": "text"},
            "more": {},
        },
        "required": ["path"],
    },
)
HELLO = UserMessage(text="hello")
FENCE = "```python\nprint(1)\n```"


def call(id_: str, tool: str = "python", **args: Any) -> Call:
    return Call(id=ActionId(id_), tool=tool, args=args)


def answer(id_: str, text: str) -> ToolMessage:
    return ToolMessage(id=ActionId(id_), text=text)


def asking(
    *messages: UserMessage | AssistantMessage | ToolMessage, tools: tuple[ToolSchema, ...] = (PYTHON,)
) -> Request:
    return Request(system="Be brief.\n", messages=messages or (HELLO,), tools=tools)


async def reply(model: TextCallLayer, request: Request | None = None) -> Reply:
    *_, last = [piece async for piece in model.stream(request or asking())]
    assert isinstance(last, Reply)
    return last


@pytest.mark.parametrize("style", ["full", "small"])
def test_python_alone_is_explained_in_few_words(style: Style) -> None:
    words = explain_tools((PYTHON,), style)
    assert len(words.split()) <= 45
    assert "```python" in words


def test_other_tools_are_explained_by_their_signatures() -> None:
    assert put_tools_in_prompt(asking(tools=(PYTHON, READ_FILE)), style="full").system == (
        "Be brief.\n\n"
        "To act, write a fenced block:\n```python\nprint(6 * 7)\n```\n"
        "It runs and its output comes back to you. Stop after your blocks; never write output yourself. "
        "When done, answer in words without a block.\n"
        "These tools are called by a line of their own, with the arguments as JSON, "
        'like <tool name="read_file">{"path": "..."}</tool>:\n'
        "read_file(path: str, lines: int | None = None, mode: 'text' | 'bytes' = 'text', more: Any = ...)  Read a file."
    )
    assert "```" not in put_tools_in_prompt(asking(tools=(READ_FILE,)), style="small").system


def test_without_tools_the_prompt_is_as_it_was() -> None:
    assert put_tools_in_prompt(asking(tools=()), style="full").system == "Be brief."


def test_a_conversation_is_told_by_turns() -> None:
    request = asking(
        HELLO,
        AssistantMessage(text=f"Look:\n{FENCE}\n", calls=(call("a", code="print(1)"),), in_text=True),
        answer("a", "1\n"),
        UserMessage(text="[The user undid cell 1.]"),
        AssistantMessage(text="So.", calls=(call("b", code="x = 1"), call("c", "read_file", path="a</tool>"))),
        answer("b", "(no output)\n"),
        answer("c", "rows"),
        answer("?", "lost"),
        AssistantMessage(text=""),
        AssistantMessage(text="Done."),
        UserMessage(text="thanks", images=(Image(mime="image/png", blob=BlobId("sha256:1")),)),
        tools=(PYTHON, READ_FILE),
    )
    asked = put_tools_in_prompt(request, style="full")
    assert asked.tools == ()
    assert asked.messages == (
        HELLO,
        AssistantMessage(text=f"Look:\n{FENCE}\n"),
        UserMessage(text="Output of python:\n1\n\n[The user undid cell 1.]"),
        AssistantMessage(
            text='So.\n\n```python\nx = 1\n```\n\n<tool name="read_file">{"path":"a\\u003c/tool>"}</tool>'
        ),
        UserMessage(text="Output of python:\n(no output)\n\nOutput of read_file:\nrows\n\nOutput:\nlost"),
        AssistantMessage(text="Done."),
        UserMessage(text="thanks", images=(Image(mime="image/png", blob=BlobId("sha256:1")),)),
    )
    assert asked.settings == request.settings
    assert asked.blobs == request.blobs


async def test_calls_are_read_out_of_the_text_and_everything_else_is_kept() -> None:
    said = Reply(
        text=f"Look:\n{FENCE}",
        usage=Usage(input_tokens=3, output_tokens=2),
        cost=0.5,
        request_id="r1",
        reasoning="hm",
        finish="length",
        echo={"k": 1},
        notices=("slow",),
    )
    model = TextCallLayer(Speaking(said), style="small")
    pieces = [piece async for piece in model.stream(asking())]
    assert pieces[0] == Thought("hm")
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == said.text
    last = pieces[-1]
    assert isinstance(last, Reply)
    (made,) = last.calls
    assert (made.tool, made.args) == ("python", {"code": "print(1)"})
    assert last == Reply(
        text=said.text,
        calls=(made,),
        usage=said.usage,
        cost=0.5,
        request_id="r1",
        reasoning="hm",
        finish="length",
        in_text=True,
        echo={"k": 1},
        notices=("slow",),
    )
    assert model.name == "speaking"


async def test_an_answer_without_calls_stays_as_it_is() -> None:
    assert await reply(TextCallLayer(Speaking("It is 42."))) == Reply(text="It is 42.")


async def test_a_call_that_cannot_be_read_is_corrected() -> None:
    said = await reply(TextCallLayer(Speaking('<tool name="python"></tool>')))
    assert (said.calls, said.in_text) == ((), False)
    assert said.correction.startswith("The call of python was not run: it has no code.")


async def test_what_the_user_wrote_is_not_run_but_what_a_tool_said_may_be() -> None:
    model = TextCallLayer(Speaking(FENCE, FENCE))
    quoted = await reply(model, asking(UserMessage(text=f"What is this?\n{FENCE}")))
    assert (quoted.calls, bool(quoted.correction)) == ((), True)
    before = AssistantMessage(text="x", calls=(call("a", code="x"),), in_text=True)
    seen = await reply(model, asking(HELLO, before, answer("a", FENCE)))
    assert [made.args for made in seen.calls] == [{"code": "print(1)"}]


async def test_an_unknown_model_is_given_its_tools_and_a_word_on_the_fence() -> None:
    inside = Speaking(FENCE)
    said = await reply(TextCallLayer(inside, when="unless-native"))
    (asked,) = inside.asked
    assert asked.tools == (PYTHON,)
    assert asked.system == ("Be brief.\n\nCode in a fenced ```python block is run too, and its output sent back.")
    assert said.in_text


async def test_a_model_that_calls_natively_once_is_never_read_again() -> None:
    native = Reply(text=FENCE, calls=(call("a", code="2"),))
    inside = Speaking(FENCE, native, FENCE)
    model = TextCallLayer(inside, when="unless-native")
    assert (await reply(model)).in_text
    assert await reply(model) == native
    assert await reply(model) == Reply(text=FENCE)
    assert inside.asked[-1] == asking()


async def test_calls_in_text_stay_text_for_a_model_that_may_call_natively() -> None:
    inside = Speaking("ok")
    spoken = AssistantMessage(text=FENCE, calls=(call("a", code="print(1)"),), in_text=True)
    native = AssistantMessage(text="", calls=(call("b", code="2"),))
    request = asking(HELLO, spoken, answer("a", "1"), native, answer("b", "2"))
    await reply(TextCallLayer(inside, when="unless-native"), request)
    assert conversation(inside.asked[0].messages, native=True) == [
        HELLO,
        AssistantMessage(text=FENCE),
        UserMessage(text="Output of python:\n1"),
        native,
        answer("b", "2"),
    ]


async def test_leaving_early_closes_the_stream_inside() -> None:
    inside = Speaking("a long reply that is not listened to")
    model = TextCallLayer(inside)
    async with aclosing(cast("AsyncGenerator[object]", model.stream(asking()))) as stream:
        assert await anext(stream) == "a long "
        assert inside.left == []
    assert len(inside.left) == 1


async def test_closing_closes_what_is_inside() -> None:
    inside = Speaking()
    await TextCallLayer(inside).aclose()
    assert inside.closed


async def test_a_native_call_that_was_cut_off_stays_told_as_such() -> None:
    cut = Reply(text="", finish="length", correction="The reply was cut off", unreadable=True)
    model = TextCallLayer(Speaking(cut, Reply(text=FENCE)), when="unless-native")
    request = Request(system="", messages=(HELLO,), tools=(PYTHON,))
    [first] = [piece async for piece in model.stream(request) if isinstance(piece, Reply)]
    assert (first.correction, first.unreadable) == ("The reply was cut off", True)
    # It calls natively, so what it writes in fences is not run.
    [second] = [piece async for piece in model.stream(request) if isinstance(piece, Reply)]
    assert second.calls == ()
