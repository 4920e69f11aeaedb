"""docs/architecture.md and the map in CONTRIBUTING.md: every file they name is there, and the way of a message is short."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not (ROOT / "docs").exists(), reason="an installed copy has no pages"),
]
MOST_STOPS = 25
MOST_FILES = 25
ROOMS = ["front", "app", "engine", "log", "model", "policy", "sandbox", "guest"]


def page() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(src/[^`]+)`", page())
    assert 20 < len(set(named)) <= MOST_FILES
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_every_file_in_the_map_of_the_rooms_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:app|engine|events|front|guest|policy|sandbox|tools)/[^`]*)`", text)
    assert len(named) > 15
    assert [path for path in named if not (ROOT / "src" / "pinfold" / path).exists()] == []
    rooms = re.findall(r"^  (\w+)/  ", text, re.MULTILINE)
    assert sorted(rooms) == sorted(path.parent.name for path in (ROOT / "src" / "pinfold").glob("*/__init__.py"))
    folders = re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)
    assert sorted(folders) == sorted(
        path.parent.name for path in (ROOT / "src" / "pinfold" / "app").glob("*/__init__.py")
    )


def test_the_way_of_a_message_has_few_stops_in_order_and_each_begins_with_its_file() -> None:
    stops = re.findall(r"^(\d+)\. (.*)$", page(), re.MULTILINE)
    assert [int(number) for number, _ in stops] == list(range(1, len(stops) + 1))
    assert len(stops) <= MOST_STOPS
    assert [words for _, words in stops if not words.startswith("`src/pinfold/")] == []


def test_the_way_goes_through_the_rooms_from_the_keyboard_to_the_guest_and_back() -> None:
    rooms = re.findall(r"^\d+\. `src/pinfold/(\w+)/", page(), re.MULTILINE)
    assert list(dict.fromkeys(rooms)) == ROOMS
    assert rooms[-1] == "front"
