"""What the model is told of a cell."""

from __future__ import annotations

import pytest

from pinfold.app.observing import observation
from pinfold.sandbox import Display, Outcome

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
