"""What the model is told of a cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.app.config.schema import LimitsConfig
from pinfold.app.session.observations import cut_result, observation
from pinfold.sandbox import Display, Outcome
from pinfold.text import capped_lines

pytestmark = pytest.mark.unit


def test_a_display_is_told_by_its_text_and_a_picture_by_what_it_is() -> None:
    table = Display(mime={"text/plain": b"   a\n0  1", "text/html": b"<table>"})
    picture = Display(mime={"text/plain": b"<Figure>", "image/png": b"x" * 1500})
    page = Display(mime={"text/html": b"<p>"})
    outcome = Outcome(status="ok", stdout="printed\n", value="done", displays=(table, picture, page))
    assert observation(outcome) == (
        "printed\n   a\n0  1\n[shown to the user: image/png, 1,500 bytes]\n"
        "[shown to the user: text/html, 3 bytes]\ndone\n"
    )


def test_the_value_is_not_told_twice() -> None:
    table = Display(mime={"text/plain": b"   a\n0  1", "text/html": b"<table>"})
    assert observation(Outcome(status="ok", value="   a\n0  1", displays=(table,))) == "   a\n0  1\n"


@pytest.mark.parametrize(
    ("limits", "whole"),
    [
        ({}, True),
        ({"output_bytes": 400}, False),
        ({"output_lines": 9}, False),
        ({"output_tokens": 100}, False),
        ({"output_bytes": 5000, "output_lines": 200, "output_tokens": 2000}, True),
    ],
)
def test_a_result_is_cut_to_what_the_user_said(limits: dict[str, int], whole: bool) -> None:
    text = "".join(f"line {number} ä\n" for number in range(100))
    shown = cut_result(text, LimitsConfig(**limits), 10_000, "there")
    assert (shown == text) == whole
    if not whole:
        assert "left out; all of it: there ...]" in shown
        assert shown.startswith("line 0 ä\n")
        assert shown.endswith("line 99 ä\n")
        note = len("[... 1,111 of 1,111 characters left out; all of it: there ...]") + 2
        assert len(shown.encode()) <= limits.get("output_bytes", 400) + note + 2
        assert shown.count("\n") <= limits.get("output_lines", 100) + 2


@given(st.text(max_size=300), st.integers(3, 50))
def test_no_line_is_lost_without_being_counted(text: str, limit: int) -> None:
    shown = capped_lines(text, limit)
    lines = text.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    if len(lines) <= limit:
        assert shown == text
    else:
        head, tail = limit * 2 // 3, limit - limit * 2 // 3
        kept = shown.split("\n")
        assert kept[:head] == lines[:head]
        assert kept[head] == f"[... {len(lines) - limit:,} of {len(lines):,} lines left out ...]"
        assert kept[head + 1 :][:tail] == lines[-tail:]


def test_what_pandas_left_out_is_told_before_the_output() -> None:
    told = Outcome(status="ok", stdout="@mean[3]\n", lost=(("to_numeric", 12, 3000), ("dropna", 1, 5)))
    assert observation(told) == (
        '[to_numeric(errors="coerce") turned 12 of 3,000 values into missing ones; dropna left out 1 of 5 rows]\n@mean[3]\n'
    )
