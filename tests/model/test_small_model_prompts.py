"""What a small model is told: examples like its task, the files it is about, first words, and a push after a failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from pinfold.events import ActionId, AssistantMessage, Call, Message, Reply, Request, Thought, ToolMessage, UserMessage
from pinfold.model.small_model_prompts import FENCE, SmallModelLayer, adapt_to_small_model, find_answer

pytestmark = pytest.mark.unit
FILES = '\n\n[Files in the current folder:\na.csv: 4 rows like x=1\nb.json: {"k": 1}\nnotes/\nx.bin (3 bytes)]'


def asked(*messages: Message, **settings: object) -> Request:
    return adapt_to_small_model(Request(system="s", messages=messages, settings=settings))


def user(text: str, files: str = FILES) -> UserMessage:
    return UserMessage(text=text + files)


def tried(code: str, output: str) -> tuple[Message, Message]:
    id_ = ActionId(f"a_{code}")
    call = Call(id=id_, tool="python", args={"code": code})
    return AssistantMessage(text=f"{FENCE}{code}", calls=(call,), in_text=True), ToolMessage(id=id_, text=output)


FAILED = "Traceback (most recent call last):\nKeyError: 'y'\n"


def texts(request: Request) -> list[str]:
    return [message.text for message in request.messages]


def test_a_task_begins_with_an_example_of_its_kind_and_an_open_fence() -> None:
    request = asked(user("Sum x in a.csv"))
    assert "shops.csv" in texts(request)[0]
    assert request.messages[-1] == AssistantMessage(text=FENCE)
    assert request.settings == {"temperature": 0, "max_tokens": 600, "stop": ["\n```"]}


def test_only_the_files_the_task_is_about_are_told_in_full() -> None:
    assert texts(asked(user("Sum x in a.csv")))[-2] == (
        "Sum x in a.csv\n\n[Files in the current folder:\na.csv: 4 rows like x=1\nb.json\nnotes/\nx.bin (3 bytes)]"
    )
    about_none = texts(asked(user("What is 2 % of 9?")))
    assert "12 %" in about_none[0]
    assert about_none[-2].endswith("[Files in the current folder:\na.csv\nb.json\nnotes/\nx.bin (3 bytes)]")


def test_a_lone_file_of_data_is_told_in_full_though_the_task_does_not_name_it() -> None:
    files = '\n\n[Files in the current folder:\n/mnt/datasets/t.csv: 4 rows like "x"=1\nnotes.md: 2 lines: # a | b\nx.bin (3 bytes)]'
    told = texts(asked(user("What is the mean of x?", files)))
    assert "shops.csv" in told[0]
    assert told[-2].endswith('t.csv: 4 rows like "x"=1\nnotes.md\nx.bin (3 bytes)]')
    two = files.replace("notes.md: 2 lines: # a | b", 'b.json: {"k": 1}')
    assert texts(asked(user("What is the mean of x?", two)))[-2].endswith("t.csv\nb.json\nx.bin (3 bytes)]")


FORM = 'What is the mean of x? Format: @mean[value] where "value" is a number'


def test_a_task_that_asks_for_a_form_is_shown_one_in_a_form() -> None:
    files = '\n\n[Files in the current folder:\nt.csv: 4 rows like "x"=1]'
    told = texts(asked(user(FORM, files)))
    assert "@money[{totals.max():.2f}]" in told[1]
    assert len(told) == 4
    assert "@money" not in "".join(texts(asked(user("What is the mean of x?", files))))


def test_an_answer_that_was_sent_back_for_its_form_is_begun_for_the_model() -> None:
    lacks = UserMessage(text="[The answer is not in the form that was asked for: @mean[...] is missing.]")
    request = asked(user(FORM), *tried("c", "2.5"), AssistantMessage(text="It is 2.5"), lacks)
    assert request.messages[-1] == AssistantMessage(text="@mean[")
    assert request.settings["stop"] == ["\n\n"]
    other = asked(user("What is the mean of x?"), AssistantMessage(text="It is 2.5"), user("And the sum?"))
    assert other.messages[-1] == AssistantMessage(text=FENCE)


@pytest.mark.parametrize("words", ["hi", "thank you", "Good morning!"])
def test_small_talk_gets_no_code(words: str) -> None:
    request = asked(user(words))
    assert request.messages == (UserMessage(text=words),)
    assert request.tools == ()


@pytest.mark.parametrize("words", ["what files are here?", "17*3", "count x in a.csv", "make a plot of a.csv"])
def test_a_task_is_not_taken_for_small_talk(words: str) -> None:
    assert asked(user(words)).messages[-1] == AssistantMessage(text=FENCE)


def test_after_a_failure_the_model_is_pushed_and_only_the_last_try_is_shown() -> None:
    once = asked(user("Sum y in a.csv"), *tried("one", FAILED))
    assert texts(once)[-2].endswith("[This failed. Write the code differently.]")
    assert once.messages[-1] == AssistantMessage(text=FENCE)
    assert once.settings["temperature"] == 0
    twice = asked(user("Sum y in a.csv"), *tried("one", FAILED), *tried("two", FAILED))
    assert not any("one" in text for text in texts(twice)[2:])
    assert (twice.settings["temperature"], twice.settings["seed"]) == (0.5, 2)
    many = asked(user("Sum y in a.csv"), *(one for n in range(4) for one in tried(str(n), FAILED)))
    assert not isinstance(many.messages[-1], AssistantMessage)


def test_settings_that_were_given_stay() -> None:
    request = asked(user("Sum y in a.csv"), *tried("1", FAILED), *tried("2", FAILED), temperature=0.2, stop=["x"])
    assert request.settings == {"temperature": 0.2, "max_tokens": 600, "stop": ["\n```", "x"]}


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("ANSWER: 42 rows\n", "42 rows"),
        ("loading\nANSWER: a\nb\n[variables: added df]", "a\nb"),
        ("42\n", None),
        ("ANSWER: 1\n" + FAILED, None),
        ("ANSWER: nan\n", None),
        ("ANSWER: 0 lines\n", None),
        ("ANSWER: 10 lines at 10:00\n", "10 lines at 10:00"),
    ],
)
def test_an_answer_that_was_printed_is_the_answer(output: str, answer: str | None) -> None:
    assert find_answer((user("q"), *tried("c", output))) == answer


def test_nothing_found_is_believed_the_second_time() -> None:
    nothing = "ANSWER: 0 lines\n"
    assert find_answer((user("q"), *tried("c", nothing), *tried("d", nothing))) == "0 lines"


class Saying:
    name = "saying"

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked = 0

    async def stream(self, request: object) -> AsyncGenerator[str | Thought | Reply]:  # noqa: ARG002
        self.asked += 1
        yield Reply(text=self.text)

    async def aclose(self) -> None:
        pass


async def replied(model: Saying, *messages: Message) -> Reply:
    pieces = [piece async for piece in SmallModelLayer(model).stream(Request(system="", messages=messages))]
    assert isinstance(pieces[-1], Reply)
    return pieces[-1]


async def test_the_model_is_not_asked_for_what_its_code_has_answered() -> None:
    model = Saying("ANSWER: from the model")
    done = await replied(model, user("q"), *tried("c", "ANSWER: 42"))
    assert (done.text, model.asked) == ("42", 0)
    open_ = await replied(model, user("q"), *tried("c", "42"))
    assert (open_.text, model.asked) == ("from the model", 1)
