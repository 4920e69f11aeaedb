"""What a small model is told of the files, by the program that looks at them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pinfold import guest

pytestmark = pytest.mark.unit
PROGRAM = Path(guest.__path__[0]) / "toolbox" / "file_overview.py"


def told(folder: Path, *data: Path) -> list[str]:
    command = [sys.executable, "-I", "-c", PROGRAM.read_text("utf-8"), *map(str, data)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()


def test_columns_are_quoted_so_that_a_blank_in_a_name_is_seen(tmp_path: Path) -> None:
    (tmp_path / "fares.csv").write_text(", Fare,Region \n0,7.25,north\n1,8,south\n")
    assert told(tmp_path) == ['fares.csv: 2 rows like "Unnamed: 0"=0, " Fare"=7.25, "Region "=north']


def test_a_lone_table_is_told_with_all_its_columns_and_one_of_two_is_not(tmp_path: Path) -> None:
    wide = ",".join(f"c{n}" for n in range(45)) + "\n" + ",".join("1" * 45) + "\n"
    (tmp_path / "a.csv").write_text(wide)
    (tmp_path / "notes.md").write_text("# a")
    assert '"c44"=1' in told(tmp_path)[0]
    (tmp_path / "b.csv").write_text("x\n1\n")
    assert told(tmp_path)[0].endswith("and 25 more columns")


def test_data_from_elsewhere_is_told_by_its_path(tmp_path: Path) -> None:
    here, folder = tmp_path / "here", tmp_path / "sets"
    here.mkdir()
    folder.mkdir()
    (here / "plan.txt").write_text("one\n")
    (folder / "one.csv").write_text("x\n1\n")
    (folder / "two.bin").write_bytes(b"123")
    assert told(here, folder) == [
        f'{folder}/one.csv: 1 rows like "x"=1',
        f"{folder}/two.bin (3 bytes)",
        "plan.txt: 1 lines: one | ",
    ]
    assert told(here, folder / "one.csv")[0] == f'{folder}/one.csv: 1 rows like "x"=1'
