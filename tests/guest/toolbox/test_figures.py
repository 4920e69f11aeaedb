"""The figures of a table are those that DuckDB's own functions give, whatever is in the file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.integration
VALUES = {
    "whole": st.integers(-(2**52), 2**52).map(str) | st.sampled_from(["0", "-0", "007", "1", "2", " 3 "]),
    "broken": st.floats(-1e9, 1e9).map(repr) | st.sampled_from(["-0.0", ".5", "2.", "0.1"]),
    "truth": st.sampled_from(["true", "false", "True", "FALSE"]),
    "day": st.dates().map(str),
    "moment": st.datetimes().map(str) | st.sampled_from(["2020-01-02 03:04", "2020-01-02T03:04:05", "2020-01-02"]),
    "text": st.text("ab é'#\\;|\t", max_size=6) | st.sampled_from(["NA ", "1x", 'a"b', "a,b", "a\nb", "\u2028"]),
}
ODD = st.sampled_from(
    [*("", "NA", "null", "nan", "None", "x", "+5", "1_000", "0x1F"), *("12.5", "2020-01-02 03", "yes", "\x00", " ")]
)
NOISE = st.sampled_from(['"', '""', "\r", "\n", "\r\n", "\n\n", ",", ",,", "\\", "#", "é", "NA", "'", ' "x" ', ',"x"'])
NEAR = ("mean", "std", "25%", "50%", "75%")
"""What depends on the order of a sum, or on how the last digit is rounded."""
COMPARED = ("column", "count", "nulls", "unique", "freq", "min", "max")


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Mostly as it should be, with something odd here and there."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    delimiter, newline = draw(st.sampled_from(",,,;\t|")), draw(st.sampled_from(["\n", "\n", "\r\n"]))
    odd, everything = draw(st.sampled_from([0, 0, 1, 3])), draw(st.booleans())
    rows = draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)).map(list), min_size=1, max_size=30))
    for _ in range(odd):
        draw(st.sampled_from(rows))[draw(st.integers(0, len(kinds) - 1))] = draw(ODD)
    names = [f"{kind} {number}" for number, kind in enumerate(kinds)]
    lines = [delimiter.join(quote(one, delimiter, everything) for one in row) for row in [names, *rows]]
    text = newline.join(lines) + draw(st.sampled_from([newline, ""]))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(max(0, len(text) - 500), len(text)))
        text = text[:at] + draw(NOISE) + text[at:]
    return text.encode()


def quote(text: str, delimiter: str, everything: bool) -> str:
    if everything or any(one in text for one in (delimiter, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


@pytest.fixture
def both(data_python: Path, tmp_path: Path) -> Generator[Callable[[bytes], Any]]:
    """Each test has a process of its own: what one that was stopped left unread, no other reads."""
    with subprocess.Popen(
        [data_python, Path(__file__).with_name("figures.py")],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        given, answers = program.stdin, program.stdout
        assert given
        assert answers

        def ask(data: bytes) -> Any:
            (tmp_path / "table.csv").write_bytes(data)
            print(json.dumps(str(tmp_path / "table.csv")), file=given, flush=True)
            return json.loads(answers.readline())

        yield ask
        program.kill()


@pytest.mark.slow
@settings(max_examples=40)
@given(table=tables())
def test_figures_are_those_of_duckdbs_own_functions(both: Callable[[bytes], Any], table: bytes) -> None:
    ours, theirs = both(table)
    assert ours.keys() == theirs.keys()
    assert (ours.get("rows"), ours.get("refused")) == (theirs.get("rows"), theirs.get("refused"))
    for one, other in zip(ours.get("figures", ()), theirs.get("figures", ()), strict=True):
        for name in COMPARED:
            if name in other:
                assert one.get(name) == other[name], (one, other)
        for name in NEAR:
            if other.get(name) is not None:
                assert one[name] == pytest.approx(other[name], rel=1e-6, abs=1e-6), (one, other)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_empty_lines_are_no_rows(both: Callable[[bytes], Any], newline: str) -> None:
    lines = ["a,b", "", *["1,x", ",", "", "", '2,"y"'] * 100, "", ""]
    ours, theirs = both(newline.join(lines).encode())
    assert ours["rows"] == theirs["rows"] == 300
    whole, text = ours["figures"]
    assert (whole["count"], whole["mean"], whole["min"], whole["max"]) == (200, 1.5, 1, 2)
    assert whole["std"] == pytest.approx(0.50125470711708)
    assert (text["count"], text["unique"], text["freq"]) == (200, 2, 100)
