"""What the frame is made of, without a terminal: pastes, history, completion, the status line, questions."""

from __future__ import annotations

import asyncio
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from pinfold.events import ModelReplied, SessionOpened, Usage, new_turn_id
from pinfold.front.chat.completion import ChatCompleter, FileHistory, files_below, rank_paths
from pinfold.front.chat.input_queue import ChoiceQuestion, InputQueue, KeyQuestion, WordsQuestion
from pinfold.front.chat.keys import Pastes
from pinfold.front.chat.status_line import Status, short

pytestmark = pytest.mark.unit


@given(st.lists(st.text(), max_size=5))
def test_whatever_is_pasted_is_sent_whole(texts: list[str]) -> None:
    pastes = Pastes()
    shown = "|".join(map(pastes.collapse, texts))
    assert pastes.expand(shown) == "|".join(texts).replace("\r\n", "\n").replace("\r", "\n")


def test_long_pastes_are_told_apart_and_go_with_one_backspace() -> None:
    pastes = Pastes()
    one, two = "a\n" * 10_000, "b\n" * 10_000
    shown = f"see {pastes.collapse(one)} and {pastes.collapse(two)}"
    assert shown == "see [pasted 10,000 lines] and [pasted 10,000 lines #2]"
    assert pastes.collapse(one) == "[pasted 10,000 lines]"
    assert pastes.expand(shown) == f"see {one} and {two}"
    assert pastes.token_before(shown) == len("[pasted 10,000 lines #2]")
    assert pastes.token_before("see [pasted 3 lines]") == 0
    assert pastes.strip_tokens(shown) == "see  and"


def test_the_history_is_private_bounded_and_survives_damage(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    history = FileHistory(path)
    for text in ("first", "two\nlines", "two\nlines"):
        history.append_string(text)
    with path.open("ab") as file:
        file.write(b"\xff not json\n17\n")
    history.append_string("x" * 20_000)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(FileHistory(path).load_history_strings()) == ["two\nlines", "first"]
    assert list(FileHistory(None).load_history_strings()) == []


def test_files_are_offered_after_an_at_without_what_git_ignores(tmp_path: Path) -> None:
    for name in ("src/main.py", "src/other.py", "build/out.o", "main.log", "node_modules/x/main.js", "readme.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("build/\n*.log\n")
    found = files_below(tmp_path)
    assert found == [".gitignore", "readme.md", "src/", "src/main.py", "src/other.py"]
    assert rank_paths("main", found) == ["src/main.py"]
    assert rank_paths("s", found)[:1] == ["src/"]

    completing = ChatCompleter()
    completing.workspace = tmp_path

    async def offered(text: str) -> list[str]:
        found = completing.get_completions_async(Document(text), CompleteEvent())
        return [completion.text async for completion in found]

    assert asyncio.run(offered("look at @src/m")) == ["src/main.py"]
    assert asyncio.run(offered("mail me@src")) == []


def test_commands_and_their_arguments_are_offered_on_a_line_of_their_own() -> None:
    completing = ChatCompleter()
    completing.commands = lambda: [("undo", "take back"), ("vars", "variables")]
    completing.arguments = lambda name, rest: [f"{name}-{rest}"]

    def offered(text: str) -> list[str]:
        return [one.text for one in completing.get_completions(Document(text), CompleteEvent())]

    assert offered("/u") == ["undo"]
    assert offered("/undo 2") == ["undo-2"]
    assert offered("say /u") == []


@given(st.integers(20, 200), st.text(max_size=60))
def test_the_status_line_tells_everything_and_fits_where_it_can(columns: int, model: str) -> None:
    status = Status(context=200_000)
    status.take(SessionOpened(version="1", workspace="/", model=model, mode="ask", sandbox="landlock"))
    used = Usage(input_tokens=12_345, output_tokens=678, cached_tokens=9_000)
    status.take(ModelReplied(turn=new_turn_id(), model=model, text="", usage=used, cost=0.5))
    line = status.line(columns)
    assert "ask · 12k in 678 out 9.0k cached · $0.50 · 7% of 200k · landlock" in line
    assert "\n" not in line
    assert len(line) < max(columns, 85)
    status.take(ModelReplied(turn=new_turn_id(), model=model, text="", usage=used, cost=None))
    assert "cost unknown" in status.line(columns)


def test_the_status_line_ends_with_the_folder_where_there_is_room() -> None:
    status = Status(model="m", mode="ask", folder="/work/projects/sales")
    assert status.line(80).endswith(" · /work/projects/sales")
    assert status.line(60).endswith(" · …k/projects/sales")
    assert "sales" not in status.line(40)


def test_a_sandbox_that_is_not_chosen_yet_is_not_in_the_status_line() -> None:
    assert Status(model="m", mode="ask", sandbox="auto").line(80) == "m · ask · 0 in 0 out · $0.00"


@given(st.integers(0, 10**10))
def test_short_counts_are_short(count: int) -> None:
    assert len(short(count)) <= 6


def test_a_key_counts_only_after_the_question_stood_and_nobody_was_typing() -> None:
    async def scene() -> None:
        input_queue = InputQueue(time.monotonic)
        armed = asyncio.Event()
        input_queue.arms = armed.set
        asked = asyncio.create_task(input_queue.ask(KeyQuestion("May it?", {"y": "yes"})))
        await asyncio.sleep(0)
        assert not input_queue.armed
        input_queue.on_drawn()
        began = time.monotonic()
        await asyncio.wait_for(armed.wait(), 60)
        assert time.monotonic() - began >= 0.5
        assert input_queue.press("Y") == ""
        assert await asked == "y"
        assert input_queue.question is None

    asyncio.run(scene())


@pytest.mark.parametrize("hidden", [True, False])
def test_a_secret_is_taken_as_soon_as_its_question_is_shown(*, hidden: bool) -> None:
    async def scene() -> None:
        input_queue = InputQueue(lambda: 0.0)
        question = WordsQuestion("groq needs a key", "key:", may_be_empty=False, hidden=hidden)
        asked = asyncio.create_task(input_queue.ask(question))
        await asyncio.sleep(0)
        input_queue.on_drawn()
        await asyncio.sleep(0)
        assert input_queue.armed is hidden
        asked.cancel()

    asyncio.run(scene())


def test_keys_that_wait_to_be_read_are_older_than_the_question() -> None:
    async def scene() -> None:
        input_queue = InputQueue(time.monotonic)
        armed, asked_for = asyncio.Event(), asyncio.Event()
        waiting = [True, True]

        def unread() -> bool:
            asked_for.set()
            return bool(waiting and waiting.pop())

        input_queue.arms, input_queue.unread = armed.set, unread
        asked = asyncio.create_task(input_queue.ask(KeyQuestion("May it?", {"y": "yes"})))
        await asyncio.sleep(0)
        input_queue.on_drawn()
        await asyncio.wait_for(asked_for.wait(), 60)
        assert not input_queue.armed
        await asyncio.wait_for(armed.wait(), 60)
        assert not waiting
        asked.cancel()

    asyncio.run(scene())


@pytest.mark.parametrize("typed", ["yes please", "maybe", "no", "any"])
def test_a_word_answers_nothing_and_is_kept(typed: str) -> None:
    async def scene() -> None:
        input_queue = InputQueue(time.monotonic)
        armed = asyncio.Event()
        input_queue.arms = armed.set
        question = KeyQuestion("May it?", {"y": "yes", "a": "always", "n": "no"})
        asked = asyncio.create_task(input_queue.ask(question))
        await asyncio.sleep(0)
        input_queue.on_drawn()
        await asyncio.wait_for(armed.wait(), 60)
        armed.clear()
        assert input_queue.press(typed[0]) == ""
        assert input_queue.press(typed[1]) == typed[:2]
        assert not input_queue.armed
        await asyncio.wait_for(armed.wait(), 60)  # long after a key would have counted
        assert not question.future.done()
        assert input_queue.paste("y") == "y"
        await asyncio.wait_for(armed.wait(), 60)
        assert not question.future.done()
        assert (input_queue.press("a"), input_queue.press("a")) == ("", "")  # twice is not another one
        assert await asked == "a"

    asyncio.run(scene())


def test_questions_wait_for_each_other_and_one_that_is_withdrawn_disappears() -> None:
    async def scene() -> None:
        input_queue = InputQueue(time.monotonic)
        first, second = KeyQuestion("first?", {"y": "yes"}), ChoiceQuestion("second?", ["a"] * 12)
        one, two = asyncio.create_task(input_queue.ask(first)), asyncio.create_task(input_queue.ask(second))
        await asyncio.sleep(0)
        assert input_queue.question is first
        one.cancel()
        await asyncio.wait([one])
        assert input_queue.question is second
        second.press("1")
        second.press("2")
        assert second.at == 11
        second.move(1)
        assert second.at == 0
        input_queue.leave()
        assert await two is None

    asyncio.run(scene())


def test_lines_are_taken_in_order_and_the_last_can_be_had_back() -> None:
    async def scene() -> None:
        input_queue = InputQueue(time.monotonic)
        for line in ("one", "two", "  ", "three"):
            input_queue.enter(line)
        assert input_queue.recall() == "three"
        assert [await input_queue.line(), await input_queue.line()] == ["one", "two"]
        assert input_queue.recall() is None
        input_queue.leave()
        assert await input_queue.line() is None

    asyncio.run(scene())
