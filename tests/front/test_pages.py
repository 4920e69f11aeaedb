"""Lines of text for a terminal: in columns, within the width, and nothing in them that steers it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.events import BlobId, FileChange
from pinfold.front.pages import columns, cut, diff_page, servers_page, size_in_words, tools_page, variables_page

pytestmark = pytest.mark.unit


def test_columns_are_as_wide_as_their_widest_and_the_last_is_cut() -> None:
    assert columns([("a", "type", "x" * 30), ("日本", "", "y")], width=20) == [
        f"a     type  {'x' * 7}…",
        "日本        y",
    ]


@given(
    rows=st.lists(st.tuples(st.text(max_size=10), st.text(max_size=60)), min_size=1, max_size=5),
    width=st.integers(60, 120),
)
def test_no_line_is_wider_than_the_terminal_or_steers_it(rows: list[tuple[str, str]], width: int) -> None:
    for line in columns(rows, width=width):
        assert "\x1b" not in line
        assert "\n" not in line
        assert line.isascii() is False or len(line) <= width


def test_what_does_not_fit_is_cut_by_cells_not_by_characters() -> None:
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 6) == "日本語"


@pytest.mark.parametrize(("count", "words"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000_000, "2.0 GB")])
def test_sizes_are_told_in_one_unit(count: int, words: str) -> None:
    assert size_in_words(count) == words


def test_a_name_of_a_variable_cannot_steer_the_terminal() -> None:
    page = variables_page([{"name": "x\x1b[2J", "type": "int\n", "shape": None, "size": None, "cell": None}])
    assert len(page) == 2
    assert "\x1b" not in page[1]


def test_tools_are_found_by_all_of_the_words() -> None:
    tools = [
        {"name": "read_file", "server": "filesystem", "effect": "pure", "words": "Read a text file"},
        {"name": "fetch", "server": "web", "effect": "keyed", "words": "Read a page"},
    ]
    assert len(tools_page(tools, "")) == 2
    assert tools_page(tools, "READ text") == ["filesystem.read_file  pure  Read a text file"]
    assert tools_page(tools, "nothing") == ["No tool matches 'nothing'; /tools shows all."]


def test_a_server_is_shown_with_its_problem() -> None:
    servers = [{"name": "files", "state": "failed", "tools": None, "problem": "it ended\nat once"}]
    assert servers_page(servers) == ["files  failed  tools not read yet  it ended"]


def test_a_diff_shows_text_and_names_the_rest() -> None:
    old, new, binary = BlobId("1"), BlobId("2"), BlobId("3")
    changes = [
        FileChange(path="a\x1b.txt", how="changed", before=old, after=new),
        FileChange(path="b", how="removed", before=old),
        FileChange(path="c", how="added", after=binary),
        FileChange(path="d", how="changed"),
    ]
    contents = {old: b"one\n", new: b"one\n\x1b[2Jtwo\n", binary: b"\0\1"}
    assert list(diff_page(changes, contents)) == [
        "a\\x1b.txt (changed, +1 -0)",
        "@@ -1 +1,2 @@",
        " one",
        "+\\x1b[2Jtwo",
        "b (removed, +0 -1)",
        "@@ -1 +0,0 @@",
        "-one",
        "c (added)",
        "  not shown: not text (2 B)",
        "d (changed)",
        "  not shown: too large to keep",
    ]


def test_a_long_diff_is_cut_and_says_how_much_is_missing() -> None:
    old, new = BlobId("1"), BlobId("2")
    change = FileChange(path="a", how="changed", before=old, after=new)
    contents = {old: b"", new: b"x\n" * 100}
    lines = list(diff_page([change], contents, 20, "/diff all shows them"))
    assert lines[0] == "a (changed, +100 -0)"
    assert lines[-1] == "  and 81 lines more; /diff all shows them"
    assert len(lines) == 22
