"""Paths below the user's home, shortened."""

from __future__ import annotations

import pytest

from pinfold.text import abbreviate_home

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ann/x.csv", "~/x.csv"),
        ("see /home/ann/a and (/home/ann/b)", "see ~/a and (~/b)"),
        ("/mnt/home/ann/x", "/mnt/home/ann/x"),
        ("/home/anna/x", "/home/anna/x"),
        ("/home/ann", "/home/ann"),
    ],
)
def test_only_what_begins_with_the_home_is_shortened(text: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert abbreviate_home(text) == shown
