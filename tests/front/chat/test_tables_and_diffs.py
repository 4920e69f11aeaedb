"""Tables in the room there is, and differences between texts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.front.chat.recorded_output import KeptTranscript

from pinfold.front.chat.renderers import code
from pinfold.front.chat.renderers.tables import Grid, parse_html_table, render_table

pytestmark = pytest.mark.unit


def lines(grid: Grid, width: int) -> list[str]:
    transcript = KeptTranscript(width)
    transcript.write(render_table(grid, width))
    return transcript.text.rstrip("\n").split("\n")


def test_columns_in_the_middle_are_left_out_and_counted() -> None:
    grid = Grid(columns=tuple(f"column_{n}" for n in range(30)), rows=(tuple(str(n) for n in range(30)),))
    head, _, row, note = lines(grid, 60)
    assert head.split() == ["column_0", "column_1", "column_2", "...", "column_28", "column_29"]
    assert row.split() == ["0", "1", "2", "...", "28", "29"]
    assert note == "25 columns left out"


def test_rows_in_the_middle_are_left_out_and_counted() -> None:
    found = lines(Grid(columns=("n",), rows=tuple((str(n),) for n in range(1000))), 40)
    assert len(found) == 2 + 41
    assert found[22].strip() == "... 960 more"


def test_figures_are_at_the_right_and_words_at_the_left() -> None:
    grid = Grid(columns=("name", "a long head"), rows=(("Golf", "-1,200.50"), ("x", "NaN"), ("yy", "3e5 %")))
    assert lines(grid, 40)[2:] == ["Golf     -1,200.50", "x              NaN", "yy           3e5 %"]


@given(
    rows=st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), min_size=1, max_size=6),
    width=st.integers(20, 90),
)
@settings(max_examples=60)
def test_no_table_is_wider_than_its_room(rows: list[list[str]], width: int) -> None:
    from rich.cells import cell_len

    from pinfold.text import presentable_line

    grid = Grid(columns=("a", "b", "c"), rows=tuple(tuple(map(presentable_line, row)) for row in rows))
    assert all(cell_len(line) <= width for line in lines(grid, width))


def test_a_page_that_is_no_plain_table_is_none() -> None:
    assert parse_html_table("<h1>words</h1>") is None
    assert parse_html_table("<table><tr><td>a</td></tr></table><table></table>") is None
    assert parse_html_table("<table><tr><td><img src=x></td></tr></table>") is None
    assert parse_html_table("<p>" + "words " * 60 + "</p><table><tr><td>a</td></tr></table>") is None
    assert parse_html_table("<details><summary>x</summary><table><tr><td>a</td></tr></table></details>") is None
    assert parse_html_table("<table><tr><td>a</td></tr>" + "<tr><td>b</td></tr>" * 100_000) is None


def test_heads_over_several_rows_and_columns_are_joined() -> None:
    page = (
        "<table><thead><tr><th></th><th colspan='2'>price</th></tr><tr><th></th><th>min</th><th>max</th></tr></thead>"
        "<tbody><tr><th>a</th><td>1</td><td>2</td></tr></tbody></table>"
    )
    found = parse_html_table(page)
    assert found is not None
    assert found.columns == ("", "price\nmin", "max")
    assert found.rows == (("a", "1", "2"),)


def test_a_cell_over_several_rows_keeps_the_others_in_their_columns() -> None:
    page = (
        "<table><tr><th>a</th><th>b</th><th>c</th></tr><tr><th rowspan='2'>x</th><th>1</th><td>2</td></tr>"
        "<tr><th>3</th><td>4</td></tr><tr><th>y</th><th>5</th><td>6</td></tr></table>"
    )
    found = parse_html_table(page.replace("><", ">\n" + " " * 50 + "<"))
    assert found is not None
    assert found.rows == (("x", "1", "2"), ("", "3", "4"), ("y", "5", "6"))


@given(st.text(max_size=300))
@settings(max_examples=60)
def test_no_page_breaks_the_reader(page: str) -> None:
    parse_html_table("<table><thead><tr><th>" + page)
    parse_html_table(page.replace("a", "<td>").replace("b", "<table>").replace("c", "</tr>"))


def diffed(diff: str, most: int = 40) -> KeptTranscript:
    transcript = KeptTranscript()
    transcript.write(*code.render_diff(diff, most=most, indent=""))
    return transcript


def test_words_that_differ_are_stressed_where_most_are_the_same() -> None:
    transcript = diffed("-the price is 10 euros\n+the price is 12 euros\n-one\n+something else altogether\n")
    assert "the price is \x1b[0m\x1b[7;31m10\x1b[0m" in transcript.sent
    assert "the price is \x1b[0m\x1b[7;32m12\x1b[0m" in transcript.sent
    assert "\x1b[31m-one" in transcript.sent
    assert transcript.text == "-the price is 10 euros\n+the price is 12 euros\n-one\n+something else altogether\n"


def test_a_long_diff_is_left_out_in_the_middle() -> None:
    diff = code.compute_diff("", "".join(f"{n}\n" for n in range(100)))
    assert diff is not None
    text = diffed(diff, most=9).text.split("\n")
    assert text[:3] == ["@@ -0,0 +1,100 @@", "+0", "+1"]
    assert text[6] == "... 92 lines more"
    assert text[-4:] == ["+97", "+98", "+99", ""]
    assert code.describe_size(diff) == "+100 -0"


def test_what_would_take_long_to_compare_is_not() -> None:
    begun = time.process_time()
    assert code.compute_diff("x\n" * 60_000, "y\n" * 60_000) is None
    assert code.compute_diff("x" * 200_000, "") is None
    diffed("-" + "ab " * 100_000 + "\n+" + "ba " * 100_000)
    assert time.process_time() - begun < 15
