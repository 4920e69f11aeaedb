"""Tables that Arrow reads have the figures that DuckDB alone would have given them, whatever is in the file."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.integration
LATE = 21_000
"""More rows than DuckDB looks at to find out the types."""
VALUES = {
    "whole": st.integers(-(2**63), 2**63 - 1).map(str) | st.sampled_from(["0", "-0", "007", "1", "2", " 3 "]),
    "broken": st.floats(-1e100, 1e100).map(repr)
    | st.sampled_from(["-0.0", "1e400", ".5", "2.", "0.1", "-inf"]),
    "truth": st.sampled_from(["true", "false", "True", "FALSE"]),
    "day": st.dates().map(str),
    "moment": st.datetimes().map(str)
    | st.sampled_from(["2020-01-02 03:04", "2020-01-02T03:04:05", "2020-01-02"]),
    "text": st.text("ab é'#\\;|\t", max_size=6)
    | st.sampled_from(["NA ", "1x", 'a"b', "a,b", "a\nb", "\u2028"]),
}
ODD = st.sampled_from(
    [
        "",
        "NA",
        "null",
        "nan",
        "None",
        "x",
        "+5",
        "1_000",
        "0x1F",
        "12.5",
        "2020-01-02 03",
        "yes",
        "t",
        "1",
        "\x00",
        " ",
    ]
)
NOISE = st.sampled_from(
    ['"', '""', "\r", "\n", "\r\n", "\n\n", ",", ",,", "\\", "#", "é", "NA", "'", ' "x" ', ',"x"']
)


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Mostly as it should be, with something odd here and there."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    delimiter, newline = draw(st.sampled_from(",,,;\t|")), draw(st.sampled_from(["\n", "\n", "\r\n"]))
    odd, everything = draw(st.sampled_from([0, 0, 1, 3])), draw(st.booleans())
    rows = draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)).map(list), min_size=1, max_size=30))
    for _ in range(odd):
        draw(st.sampled_from(rows))[draw(st.integers(0, len(kinds) - 1))] = draw(ODD)
    if draw(st.sampled_from([False, False, True])):
        rows = [rows[0]] * LATE + rows
    names = [f"{kind} {number}" for number, kind in enumerate(kinds)]
    lines = [delimiter.join(quoted(one, delimiter, everything) for one in row) for row in [names, *rows]]
    text = newline.join(lines) + draw(st.sampled_from([newline, ""]))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(max(0, len(text) - 500), len(text)))
        text = text[:at] + draw(NOISE) + text[at:]
    return text.encode()


def quoted(text: str, delimiter: str, everything: bool) -> str:
    if everything or any(one in text for one in (delimiter, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


@pytest.fixture(scope="module")
def both(data_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Callable[[bytes], Any]]:
    folder = tmp_path_factory.mktemp("tables")
    with subprocess.Popen(
        [data_python, Path(__file__).with_name("both.py")],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        given, answers = program.stdin, program.stdout
        assert given
        assert answers

        def ask(data: bytes) -> Any:
            (folder / "table.csv").write_bytes(data)
            print(json.dumps(str(folder / "table.csv")), file=given, flush=True)
            return json.loads(answers.readline())

        yield ask
        given.close()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(table=tables())
def test_arrow_and_duckdb_agree(both: Callable[[bytes], Any], table: bytes) -> None:
    ours, theirs = both(table)
    arrow = ours.pop("arrow", None)
    theirs.pop("arrow", None)
    near(ours, theirs)
    assert ours == theirs, arrow


def near(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Sums depend on the order: what is the same but for rounding becomes the same."""
    for one, other in zip(ours.get("figures", ()), theirs.get("figures", ()), strict=True):
        for name in ("mean", "std"):
            have, want = one.get(name), other.get(name)
            if isinstance(have, float) and isinstance(want, float) and math.isclose(have, want, rel_tol=1e-6):
                one[name] = want


@pytest.mark.parametrize(
    "row",
    [
        "anna,1,0.5,true,2020-01-02,2020-01-02 03:04:05,NA",
        '"an,na","1","0.5","true","2020-01-02","2020-01-02 03:04:05","a ""b""\nc"',
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_is_plain_is_read_by_arrow(both: Callable[[bytes], Any], row: str, newline: str) -> None:
    lines = ["a,b,c,d,e,f,g", *[row.replace("\n", newline)] * 100]
    ours, theirs = both(newline.join(lines).encode())
    assert ours["arrow"]
    assert not theirs["arrow"]
    assert ours["rows"] == 100
    assert ours["figures"] == theirs["figures"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_empty_lines_are_no_rows(both: Callable[[bytes], Any], newline: str) -> None:
    lines = ["a,b", "", *["1,x", ",", "", "", '2,"y"'] * 100, "", ""]
    ours, theirs = both(newline.join(lines).encode())
    assert ours["arrow"]
    assert ours["rows"] == theirs["rows"] == 300
    assert ours["figures"] == theirs["figures"]
