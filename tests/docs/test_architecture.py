"""docs/architecture.md follows one message through the code: every file it names is there, and the way is short."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not (ROOT / "docs").exists(), reason="an installed copy has no pages"),
]
MOST_STOPS = 25
ROOMS = ["front", "app", "engine", "log", "model", "policy", "sandbox", "guest"]


def page() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(src/[^`]+)`", page())
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_the_way_of_a_message_has_few_stops_in_order_and_each_begins_with_its_file() -> None:
    stops = re.findall(r"^(\d+)\. (.*)$", page(), re.MULTILINE)
    assert [int(number) for number, _ in stops] == list(range(1, len(stops) + 1))
    assert len(stops) <= MOST_STOPS
    assert [words for _, words in stops if not words.startswith("`src/pinfold/")] == []


def test_the_way_goes_through_the_rooms_from_the_keyboard_to_the_guest_and_back() -> None:
    rooms = re.findall(r"^\d+\. `src/pinfold/(\w+)/", page(), re.MULTILINE)
    assert list(dict.fromkeys(rooms)) == ROOMS
    assert rooms[-1] == "front"
