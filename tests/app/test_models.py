"""What is kept of models between sessions: the day's spending, and which are paused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinfold.app.models.session_models import BreakerStore, CallOptions, SpendingLedger, keys_in, select_models
from pinfold.engine import Spent
from pinfold.events import Usage
from pinfold.model import ModelError

pytestmark = pytest.mark.unit
USED = Usage(input_tokens=3, output_tokens=2)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_the_days_spending_adds_up_over_sessions() -> None:
    assert SpendingLedger().today() == Spent()
    SpendingLedger().add(USED, 0.25)
    SpendingLedger().add(USED, 0.5)
    assert SpendingLedger().today() == Spent(tokens=10, cost=0.75)


def test_a_price_that_is_not_known_makes_the_sum_unknown_and_not_smaller() -> None:
    SpendingLedger().add(USED, 0.25)
    SpendingLedger().add(USED, None)
    assert SpendingLedger().today() == Spent(tokens=10, cost=None)


def test_a_torn_line_of_spending_costs_only_itself(tmp_path: Path) -> None:
    SpendingLedger().add(USED, 0.25)
    (file,) = (tmp_path / "pinfold" / "spent").iterdir()
    file.write_text(file.read_text(encoding="utf-8") + '{"tokens": 5, "co', encoding="utf-8")
    assert SpendingLedger().today() == Spent(tokens=5, cost=0.25)


def test_what_one_process_found_failing_another_leaves_alone() -> None:
    here, there = BreakerStore().breaker(), BreakerStore().breaker()
    for breaker in (here, there, here, there, here):
        assert breaker.state("the model m") == "closed"
        breaker.record_failure("the model m")
    assert list(BreakerStore().all()) == ["the model m"]
    assert (there.state("the model m"), there.state("the model other")) == ("open", "closed")
    there.record_success("the model m")
    assert BreakerStore().all() == {}
    assert here.state("the model m") == "closed"


def test_of_several_processes_one_probes_a_model_that_was_paused() -> None:
    here, there = BreakerStore().breaker(), BreakerStore().breaker()
    for _ in range(5):
        here.record_failure("the model m")
    here.cooldown_s = there.cooldown_s = 0.0
    assert there.state("the model m") == "half-open"
    there.cooldown_s = 100.0
    assert here.wait_s("the model m") == 0.0
    assert there.wait_s("the model m") > 0
    here.record_unknown("the model m")
    there.cooldown_s = 0.0
    assert there.wait_s("the model m") == 0.0


def test_a_tool_of_one_name_is_not_paused_for_everyone() -> None:
    here = BreakerStore().breaker()
    for _ in range(5):
        here.record_failure("the tool fetch")
    assert here.state("the tool fetch") == "open"
    assert BreakerStore().all() == {}
    assert BreakerStore().breaker().state("the tool fetch") == "closed"


def test_only_keys_and_addresses_are_taken_from_the_environment() -> None:
    environment = {"OPENAI_API_KEY": "k", "OLLAMA_HOST": "h", "HOME": "/root", "MY": "x", "GROQ_API_KEY": ""}
    assert keys_in(environment) == {"OPENAI_API_KEY": "k", "OLLAMA_HOST": "h"}
    assert keys_in(environment, also="MY")["MY"] == "x"


def test_who_only_stands_by_and_cannot_be_had_stops_nobody(tmp_path: Path) -> None:
    script = tmp_path / "s.jsonl"
    script.write_text('{"text": "hi"}\n', encoding="utf-8")
    calling = CallOptions(escalate="anthropic:claude-sonnet-4-5", fallback=("nobody:knows", f"scripted:{script}"))
    found = select_models(f"scripted:{script}", "", (), calling)
    assert [model.name for model in found.fallbacks] == [f"scripted:{script}"]
    assert found.escalate is None
    no_provider, no_key = found.notices
    assert no_provider.startswith("nobody:knows (models.fallback) cannot be used: ")
    assert no_key.startswith("anthropic:claude-sonnet-4-5 (models.escalate) cannot be used: ")
    with pytest.raises(ModelError):
        select_models("nobody:knows", "", (), calling)
