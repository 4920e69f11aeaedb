"""Tokens are counted as o200k counts them, with nothing but the table we ship."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.app.bench import o200k
from pinfold.app.bench.weighing import tokens_of_lines

pytestmark = pytest.mark.unit

KNOWN: list[tuple[str, int]] = json.loads(
    (Path(__file__).parent / "counted.json").read_text(encoding="utf-8")
)


def test_the_table_is_whole() -> None:
    ranks = o200k.ranks()
    assert len(ranks) == o200k.TOKENS
    assert sorted(ranks.values()) == list(range(o200k.TOKENS))
    assert all(bytes([one]) in ranks for one in range(256))


def test_counts_are_those_of_tiktoken() -> None:
    """The file was written with tiktoken 0.14: code, prose, tables, other scripts, noise."""
    assert len(KNOWN) >= 300
    wrong = [(text[:40], count, o200k.count(text)) for text, count in KNOWN if o200k.count(text) != count]
    assert wrong == []


def test_a_weakened_pattern_would_be_noticed() -> None:
    """The control: most texts are counted otherwise by whoever cuts at blanks."""
    naive = [sum(len(o200k.parts(word.encode())) for word in text.split()) for text, _ in KNOWN]
    assert sum(found != count for found, (_, count) in zip(naive, KNOWN, strict=True)) > 200


def test_a_live_tiktoken_agrees_where_there_is_one() -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except Exception as error:  # noqa: BLE001 - it wants to load the table from the network
        pytest.skip(f"tiktoken has no table: {error}")
    sources = sorted(Path(o200k.__file__).parents[3].rglob("*.py"))
    assert len(sources) > 100
    for source in sources:
        text = source.read_text(encoding="utf-8")
        assert o200k.count(text) == len(encoding.encode_ordinary(text)), source


@settings(max_examples=200)
@given(st.binary(min_size=1, max_size=120))
def test_both_ways_of_merging_give_the_same(piece: bytes) -> None:
    table = o200k.ranks()
    assert o200k.merged_short(piece, table) == o200k.merged_long(piece, table)
    assert b"".join(o200k.parts(piece)) == piece


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.characters(categories=["L", "N"]),
            st.text(max_size=20).map(lambda text: text.replace("\r", " ")),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_blocks_of_lines_add_up(lines: list[tuple[str, str]], times: int) -> None:
    block = "".join(f"{first}{rest}\n" for first, rest in lines)
    assert o200k.count(block * times) == tokens_of_lines(block, times)


def test_what_does_not_add_up_is_refused() -> None:
    assert o200k.count("\n a\n" * 2) != 2 * o200k.count("\n a\n")
    with pytest.raises(ValueError, match="add up"):
        tokens_of_lines("\n a\n", 2)
