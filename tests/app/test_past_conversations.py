"""Past conversations are searched by what was said: indexed as sessions grow, gone with them, made anew when lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.app.test_session_store import shelve

from pinfold.app import SessionStore
from pinfold.app.session.notes import CONVERSATION, conversations_file, search_conversations
from pinfold.app.session.options import IMPORTED
from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    Event,
    ModelReplied,
    RunCell,
    SessionForked,
    SessionId,
    SessionOpened,
    TurnId,
    UserSpoke,
)
from pinfold.log import Log
from pinfold.memory import PastMessage

pytestmark = pytest.mark.integration
TURN = TurnId("t_2")


def opened(workspace: str = "/work/a", *, untrusted: bool = False, imported: bool = False) -> SessionOpened:
    return SessionOpened(
        version="1",
        workspace=workspace,
        model="m",
        mode="ask",
        sandbox="auto",
        untrusted=untrusted,
        imported=imported,
    )


def asked(text: str) -> UserSpoke:
    return UserSpoke(turn=TURN, text=text)


def answered(text: str) -> ModelReplied:
    return ModelReplied(turn=TURN, model="m", text=text)


def found(words: str, limit: int = 10) -> list[tuple[str, str]]:
    return [(one.session, one.text) for one in search_conversations(words, limit, places=CONVERSATION)]


def trust(words: str) -> list[bool]:
    return [one.trusted for one in search_conversations(words, 10)]


async def test_prompts_answers_code_and_output_are_found_with_their_place() -> None:
    ran = ActionId("a_1")
    await shelve(
        "s_one",
        opened(),
        asked("which zebra is fastest?"),
        ActionProposed(id=ran, action=RunCell(code="rows.sort()")),
        ActionFinished(id=ran, outcome="ok", observation="zebra 7"),
        answered("Zebra seven."),
    )
    places = {one.place: one.text for one in search_conversations("zebra", 10)}
    assert places == {"you": "which zebra is fastest?", "output": "zebra 7", "agent": "Zebra seven."}
    assert [one.place for one in search_conversations("sort", 10)] == ["code"]
    assert {one.place for one in search_conversations("zebra", 10, places=CONVERSATION)} == {"agent", "you"}
    assert search_conversations("zebra", 10, workspace="/work/b") == []
    assert search_conversations("zebra", 10, besides="s_one") == []
    assert len(search_conversations("zebra", 10, workspace="/work/a")) == 3, "the control"


async def test_a_session_that_grows_is_read_on_and_one_that_is_removed_is_gone_from_the_file() -> None:
    folder = await shelve("s_one", opened(), asked("the first walrus"))
    await shelve("s_two", opened(), asked("another walrus"))
    assert {session for session, _ in found("walrus")} == {"s_one", "s_two"}
    log = Log(folder, SessionId("s_one"))
    await log.append(asked("a later narwhal"))
    assert found("narwhal") == [("s_one", "a later narwhal")], "while the session is open, too"
    log.close()
    assert found("narwhal") == [("s_one", "a later narwhal")]
    assert [text for _, text in found("first walrus")].count("the first walrus") == 1
    SessionStore().remove(SessionId("s_one"))
    kept = b"".join(path.read_bytes() for path in conversations_file().parent.glob("conversations.db*"))
    assert b"narwhal" not in kept
    assert b"another walrus" in kept, "the control"
    assert found("walrus narwhal") == [("s_two", "another walrus")]


async def test_the_index_is_made_anew_when_it_is_lost_or_damaged() -> None:
    await shelve("s_one", opened(), asked("a lonely walrus"))
    assert found("walrus")
    conversations_file().unlink()
    assert found("walrus")
    conversations_file().write_bytes(b"no database" * 500)
    assert found("walrus") == [("s_one", "a lonely walrus")]
    assert conversations_file().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("events", "trusted"),
    [
        ([opened()], True),
        ([opened(untrusted=True)], False),
        ([opened(), opened(imported=True)], False),
        ([opened(), ActionFinished(id=ActionId("a_1"), outcome="ok", observation="", untrusted=True)], False),
    ],
)
async def test_a_session_that_has_met_outside_text_is_not_trusted_not_even_its_beginning(
    events: list[Event], trusted: bool
) -> None:
    await shelve("s_one", asked("a walrus"), *events)
    assert trust("walrus") == [trusted]


async def test_trust_that_is_lost_later_does_not_come_back() -> None:
    folder = await shelve("s_one", opened(), asked("a walrus"))
    assert trust("walrus") == [True]
    for more in (ActionFinished(id=ActionId("a_1"), outcome="ok", observation="", untrusted=True), asked("go on")):
        log = Log(folder, SessionId("s_one"))
        await log.append(more)
        log.close()
        assert trust("walrus") == [False]


async def test_an_imported_session_that_was_never_opened_is_not_trusted() -> None:
    folder = await shelve("s_one", opened(), asked("a walrus"))
    (folder / IMPORTED).touch()
    assert trust("walrus") == [False]


async def test_a_fork_is_found_by_its_own_words_only() -> None:
    await shelve("s_one", opened(), asked("a walrus"))
    await shelve(
        "s_two", opened(), asked("a walrus"), SessionForked(source=SessionId("s_one"), last=3), asked("a seal")
    )
    assert found("walrus") == [("s_one", "a walrus")]
    assert found("seal") == [("s_two", "a seal")]


async def test_the_answer_is_found_beside_the_question_and_secrets_are_not_kept() -> None:
    key = "ghp_" + "a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6"
    await shelve(
        "s_one", opened(), asked("what colour has the pricing page of the pricing project?"), answered("Green.")
    )
    await shelve("s_key", opened(), asked(f"my token is {key}"))
    for number in range(8):
        await shelve(
            f"s_x{number}", opened(), asked(f"page {number} " + "of a very long report about the weather " * 9)
        )
    assert ("s_one", "Green.") in found("pricing page", 3)
    assert found("token")
    assert key.encode() not in conversations_file().read_bytes()


async def test_sessions_are_searched_best_first_with_the_places(tmp_path: Path) -> None:
    await shelve("s_weak", opened(str(tmp_path)), asked("walrus " + "and many other animals of the sea " * 10))
    await shelve("s_best", opened(str(tmp_path)), asked("walrus count"), answered("Seven of them."), days_ago=3)
    found = SessionStore().search(["walrus", "count"])
    assert [item.id for item, _ in found] == ["s_best", "s_weak"]
    assert [(hit.place, hit.text) for hit in found[0][1]] == [("you", "walrus count")]
    assert SessionStore().search(["nothing like it"]) == []
    exactly = SessionStore().search_exactly(["walrus", "Seven of"])
    assert [item.id for item, _ in exactly] == ["s_best"]
    assert isinstance(search_conversations("walrus", 1)[0], PastMessage)
