"""A conversation that any provider takes: what is changed, what is not, and laws that hold for all of them."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from pinfold.events import (
    ActionId,
    AssistantMessage,
    BlobId,
    Call,
    Image,
    Message,
    Request,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from pinfold.hooks import AnthropicPromptCache, MessageCleanup
from pinfold.model.wire.conversation import (
    GO_ON,
    NO_OUTPUT,
    NO_PICTURES,
    NO_RESULT,
    Pictures,
    normalize_request,
    valid_id,
    valid_name,
)

pytestmark = pytest.mark.unit
GO = UserMessage(text="go")
DONE = AssistantMessage(text="done")
BLOB = BlobId("sha256:1")
PNG = Image(mime="image/png", blob=BLOB)


def call(number: int, tool: str = "python") -> Call:
    return Call(id=ActionId(f"a_{number}"), tool=tool, args={"code": "1"})


def calling(*numbers: int) -> AssistantMessage:
    return AssistantMessage(text="", calls=tuple(call(number) for number in numbers))


def result(number: int, text: str = "1") -> ToolMessage:
    return ToolMessage(id=ActionId(f"a_{number}"), text=text)


def clean(*messages: Message, pictures: Pictures = NO_PICTURES) -> tuple[Message, ...]:
    request = Request(system="", messages=messages, blobs={BLOB: b"png"})
    return normalize_request(request, pictures).messages


@pytest.mark.parametrize(
    ("given_", "sent"),
    [
        # What is fine stays as it is.
        ((GO, DONE, GO), (GO, DONE, GO)),
        ((GO, calling(1, 2), result(1), result(2), DONE), (GO, calling(1, 2), result(1), result(2), DONE)),
        # Calls and results.
        ((GO, result(9), DONE), (GO, DONE)),
        ((GO, calling(1)), (GO, calling(1), result(1, NO_RESULT))),
        ((GO, calling(1, 2), result(2)), (GO, calling(1, 2), result(1, NO_RESULT), result(2))),
        ((GO, calling(1, 2), result(2), result(1)), (GO, calling(1, 2), result(1), result(2))),
        ((GO, calling(1), GO, result(1)), (GO, calling(1), result(1), GO)),
        ((GO, calling(1), result(1), result(1, "again")), (GO, calling(1), result(1))),
        (
            (GO, calling(1), result(1, "x"), calling(1), result(1, "y")),
            (GO, calling(1), result(1, "x"), calling(1), result(1, "y")),
        ),
        ((GO, calling(1), result(1, "")), (GO, calling(1), result(1, NO_OUTPUT))),
        # Nothing empty.
        ((GO, AssistantMessage(text=" \n"), UserMessage(text="?")), (UserMessage(text="go\n\n?"),)),
        ((UserMessage(text=""),), (UserMessage(text=GO_ON),)),
        # In turns, the user first.
        ((), (UserMessage(text=GO_ON),)),
        ((DONE,), (UserMessage(text=GO_ON), DONE)),
        ((GO, GO), (UserMessage(text="go\n\ngo"),)),
        ((GO, DONE, DONE), (GO, AssistantMessage(text="done\n\ndone"))),
        ((GO, DONE, calling(1), result(1)), (GO, replace(calling(1), text="done"), result(1))),
    ],
)
def test_a_conversation_is_made_regular(given_: tuple[Message, ...], sent: tuple[Message, ...]) -> None:
    assert clean(*given_) == sent


def test_calls_read_out_of_a_text_stay_in_it_and_their_results_are_told_by_the_user() -> None:
    said = "```python\n1\n```"
    in_text = AssistantMessage(text=said, calls=(call(1), call(2, "shell")), in_text=True)
    assert clean(GO, in_text, result(1), result(2, ""), GO) == (
        GO,
        AssistantMessage(text=said),
        UserMessage(text=f"Output of python:\n1\n\nOutput of shell:\n{NO_OUTPUT}\n\ngo"),
    )


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("plain ä 👩‍🔬\n\t\x1b", "plain ä 👩‍🔬\n\t\x1b"),
        ("\0", "\ufffd"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_text_that_json_cannot_carry_is_replaced(text: str, read: str) -> None:
    made = Call(id=ActionId("a_1"), tool="python", args={text: [text, 1, None, {"in": text}]})
    sent = clean(UserMessage(text=f"x{text}"), AssistantMessage(text="", calls=(made,)), result(1, f"x{text}"))
    assert sent == (
        UserMessage(text=f"x{read}"),
        AssistantMessage(text="", calls=(replace(made, args={read: [read, 1, None, {"in": read}]}),)),
        result(1, f"x{read}"),
    )


def picture(*mimes: str, text: str = "look") -> UserMessage:
    return UserMessage(text=text, images=tuple(Image(mime=mime, blob=BLOB) for mime in mimes))


@pytest.mark.parametrize(
    ("most", "given_", "sent"),
    [
        (2, (picture("image/png"),), (picture("image/png"),)),
        (0, (picture("image/png"),), (UserMessage(text="look\n\n[1 picture left out]"),)),
        (2, (picture("image/tiff", "image/png"),), (picture("image/png", text="look\n\n[1 picture left out]"),)),
        (
            1,
            (picture("image/png", "image/png"), DONE, picture("image/png", text="")),
            (UserMessage(text="look\n\n[2 pictures left out]"), DONE, picture("image/png", text="")),
        ),
        (
            1,
            (UserMessage(text="", images=(Image(mime="image/png", blob=BlobId("sha256:gone")),)),),
            (UserMessage(text="[1 picture left out]"),),
        ),
    ],
)
def test_only_pictures_that_a_provider_takes_are_sent_the_newest_first(
    most: int, given_: tuple[Message, ...], sent: tuple[Message, ...]
) -> None:
    assert clean(*given_, pictures=Pictures(kinds=("image/png",), most=most)) == sent


def test_hooks_clean_up_and_set_how_long_a_prompt_is_kept() -> None:
    request = Request(system="\0", messages=(GO, result(9)), settings={"seed": 1})
    assert MessageCleanup().before_model(request) == replace(request, system="\ufffd", messages=(GO,))
    for hook, setting in (
        (AnthropicPromptCache(), "5m"),
        (AnthropicPromptCache("1h"), "1h"),
        (AnthropicPromptCache("off"), False),
    ):
        assert hook.before_model(request) == replace(request, settings={"seed": 1, "prompt_cache": setting})


# Laws

texts = st.one_of(st.sampled_from(["", " ", "\0", "\ud800", "go", "\udfffx"]), st.text(max_size=5))
ids = st.sampled_from([ActionId(name) for name in ("a_1", "a_2", "a_3", "", "ü")])
calls = st.builds(Call, id=ids, tool=texts, args=st.one_of(texts, st.dictionaries(texts, texts, max_size=2)))
images = st.lists(st.sampled_from([PNG, Image(mime="image/x", blob=BLOB)]), max_size=2).map(tuple)
messages = st.lists(
    st.one_of(
        st.builds(UserMessage, text=texts, images=images),
        st.builds(AssistantMessage, text=texts, calls=st.lists(calls, max_size=2).map(tuple), in_text=st.booleans()),
        st.builds(ToolMessage, id=ids, text=texts),
    ),
    max_size=8,
).map(tuple)
PICTURES = Pictures(kinds=("image/png",), most=2)


@given(messages)
def test_whatever_was_said_the_result_is_regular(said: tuple[Message, ...]) -> None:
    sent = clean(*said, pictures=PICTURES)
    assert isinstance(sent[0], UserMessage)
    assert all(not re.search("[\0\ud800-\udfff]", message.text) for message in sent)
    open_: list[ActionId] = []
    previous: Message | None = None
    for message in sent:
        if isinstance(message, ToolMessage):
            assert message.id == open_.pop(0)
            assert message.text.strip()
        else:
            assert open_ == []
            assert type(message) is not type(previous)
        if isinstance(message, AssistantMessage):
            assert message.text.strip() or message.calls
            assert not message.in_text
            open_ = [call.id for call in message.calls]
        if isinstance(message, UserMessage):
            assert message.text.strip() or message.images
        previous = message
    assert open_ == []
    assert sum(len(message.images) for message in sent if isinstance(message, UserMessage)) <= PICTURES.most


@given(messages)
def test_cleaning_twice_is_cleaning_once(said: tuple[Message, ...]) -> None:
    once = clean(*said, pictures=PICTURES)
    assert clean(*once, pictures=PICTURES) == once


turns = st.lists(st.tuples(texts, st.lists(st.tuples(texts, texts), max_size=2), st.booleans()), min_size=1, max_size=4)


@given(turns)
def test_what_was_sent_on_one_step_is_the_beginning_of_the_next(
    turns: list[tuple[str, list[tuple[str, str]], bool]],
) -> None:
    """A conversation as it grows: whenever the model was asked, the same messages stand first ever after."""
    said: list[Message] = [GO]
    before: tuple[Message, ...] = ()
    for number, (words, made, in_text) in enumerate(turns):
        asked = clean(*said)
        assert asked[: len(before)] == before
        before = asked
        named = [(ActionId(f"a_{number}_{place}"), args, out) for place, (args, out) in enumerate(made)]
        answered = tuple(Call(id=id_, tool="python", args={"code": args}) for id_, args, _ in named)
        text = words if words.strip() else "So."
        said.append(AssistantMessage(text=text, calls=answered, in_text=in_text))
        said += [ToolMessage(id=id_, text=out) for id_, _, out in named] or [GO]


@given(st.lists(st.text(), unique=True, max_size=20))
def test_names_of_tools_are_valid_everywhere_and_never_mixed_up(names: list[str]) -> None:
    valid = [valid_name(name) for name in names]
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name) for name in valid)
    assert len(set(valid)) == len(names)
    assert [valid_name(name) for name in valid] == valid


@given(st.text(), st.sampled_from([None, 9]))
def test_ids_of_calls_are_valid_and_stay_so(id_: str, length: int | None) -> None:
    valid = valid_id(id_, length)
    assert re.fullmatch(r"[A-Za-z0-9]{9}" if length else r"[A-Za-z0-9_-]{1,64}", valid)
    assert valid_id(valid, length) == valid


def test_a_good_name_is_kept_and_a_bad_one_can_still_be_read() -> None:
    assert valid_name("read_file") == "read_file"
    assert re.fullmatch(r"mcp_github_list_issues_[0-9a-f]{8}", valid_name("mcp.github/list issues"))
    schema = ToolSchema(name="a b", description="\0", parameters={})
    request = normalize_request(Request(system="", messages=(GO,), tools=(schema,)))
    assert request.tools == (replace(schema, description="\ufffd"),)
