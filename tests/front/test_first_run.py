"""What someone who has configured nothing is told and asked."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.servers import Says, failing, serving

from pinfold.app.diagnostics.first_run import DetectedSetup, Key, Offer, agree_on_model, detect_setup
from pinfold.front.chat.session_target import ROWS, first_screen
from pinfold.model.local.discovery import FoundModel, FoundServer, Kind

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is set, and no Ollama answers."""
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


@contextmanager
def ollama(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    with serving(failing(404, {"error": "not found"})) as server:
        tags = {"models": [{"name": "heron:4b"}]}
        server.route({"": [failing(404, {})], "/api/tags": [failing(200, tags)]})
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        yield


class Person:
    """Says yes to what names one of these."""

    def __init__(self, *agreed: str) -> None:
        self.asked: list[str] = []
        self._agreed = agreed

    async def agrees(self, question: str) -> bool:
        self.asked.append(question)
        return any(word in question for word in self._agreed)


async def test_a_local_server_is_used_unasked_even_where_a_key_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with ollama(monkeypatch):
        seen = await detect_setup()
    assert (seen.model, seen.offer) == ("ollama:heron:4b", None)
    person = Person()
    assert await agree_on_model(seen, person.agrees) == "ollama:heron:4b"
    assert person.asked == []
    screen = "\n".join(first_screen(seen))
    assert "ollama:heron:4b: a server of this machine; nothing leaves this machine" in " ".join(screen.split())
    assert "OPENAI_API_KEY (openai)" in screen
    assert "sk-test" not in screen


async def test_a_provider_is_used_after_one_yes_that_names_it_and_that_is_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    config = tmp_path / "xdg/config/pinfold/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n[run]\nmode = 'ask'  # careful\n", encoding="utf-8")
    seen = await detect_setup()
    assert seen.model == ""
    person = Person("OPENAI_API_KEY")
    assert await agree_on_model(seen, person.agrees) == "openai:gpt-5-mini"
    (question,) = person.asked
    assert "With openai:gpt-5-mini what you type" in question
    assert "goes to api.openai.com:443" in question
    kept = config.read_text(encoding="utf-8")
    assert kept.startswith("# mine\n[run]\nmode = 'ask'  # careful\n")
    again = await detect_setup()
    assert (again.model, again.why, again.offer) == ("openai:gpt-5-mini", "as configured", None)


async def test_who_says_no_to_a_provider_is_offered_the_built_in_model_with_its_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    seen = await detect_setup()
    no = Person()
    assert await agree_on_model(seen, no.agrees) == ""
    assert not any("?" in question for question in no.asked)  # whoever asks adds it
    assert ["anthropic" in no.asked[0], "(1,117 MB)" in no.asked[1]] == [True, True]
    assert not (tmp_path / "xdg/config/pinfold/config.toml").exists()
    assert await agree_on_model(seen, Person("built-in").agrees) == "builtin"


async def test_a_server_that_never_answers_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Says(end="hang")) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        began = time.monotonic()
        seen = await detect_setup()
        assert time.monotonic() - began < 60  # 0.45 s by itself; the rest is for a busy machine
    assert seen.servers == ()
    assert seen.builtin_size == "1,117 MB"


async def test_what_is_known_without_asking_is_told_when_there_was_no_time_to_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with ollama(monkeypatch):
        seen = await detect_setup(limit_s=0)
    assert (seen.servers, seen.isolation) == ((), "unknown")
    assert seen.builtin_size == "1,117 MB"
    assert await agree_on_model(seen, Person("OPENAI_API_KEY").agrees) == "openai:gpt-5-mini"


words = st.text(st.characters(codec="utf-8"), max_size=200)
models = st.lists(st.builds(FoundModel, id=words), max_size=9).map(tuple)
servers = st.builds(
    FoundServer, kind=st.sampled_from(get_args(Kind)), base_url=words, models=models, needs_key=st.booleans()
)


@settings(max_examples=60)
@given(
    st.builds(
        DetectedSetup,
        servers=st.lists(servers, max_size=9).map(tuple),
        builtin=words,
        builtin_size=words,
        keys=st.lists(st.builds(Key, provider=words, variable=words), max_size=9).map(tuple),
        sandbox=words,
        model=words,
        why=words,
        offer=st.none() | st.builds(Offer, model=words, variable=words, to=words),
    ),
    st.sampled_from([40, 80, 200]),
)
def test_it_is_one_screen_whatever_was_found(seen: Any, width: int) -> None:
    lines = first_screen(seen, width)
    assert len(lines) <= ROWS
    assert max(map(len, lines)) <= width
    assert not any("\x1b" in line for line in lines)
