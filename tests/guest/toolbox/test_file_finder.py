"""Finding files by name and by content: the same answer with ripgrep and without, and pathlib's where it has one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.guest.toolbox import file_finder, file_reader, text_search, texts
from pinfold.guest.toolbox.program_io import Refused

pytestmark = pytest.mark.unit
Grep: TypeAlias = Callable[..., list[str]]
names = st.text(st.sampled_from("ab.[-"), min_size=1, max_size=3).filter(lambda name: name.strip(".") != "")
trees = st.lists(st.lists(names, min_size=1, max_size=3), max_size=8)
parts = st.sampled_from(["*", "**", "a*", "?", "[ab]*", "*.a", "a", "b", "**"])
patterns = st.lists(parts, min_size=1, max_size=3).map("/".join)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(folder: Path, tree: list[list[str]]) -> None:
    for path in tree:
        full = folder.joinpath(*path)
        if not full.exists() and not any(parent.is_file() for parent in full.parents):
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text("x\n")


def glob(pattern: str, path: str = ".") -> list[str]:
    return file_finder.glob(pattern, path)["text"].splitlines()


@given(tree=trees, pattern=patterns)
def test_glob_finds_what_pathlib_finds_but_for_hidden_files(tree: list[list[str]], pattern: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make(Path(folder), tree)
        # A last `**` means folders to older pathlibs, and everything below to a user.
        same = f"{pattern}/*" if pattern.endswith("**") else pattern
        expected = {
            str(found)
            for found in Path().glob(same)
            if not any(part.startswith(".") for part in found.parts) and str(found) != "."
        }
        found = [line.rstrip("/") for line in glob(pattern) if not line.startswith("[nothing matches")]
        assert found == sorted(expected)


def test_glob_skips_what_nobody_wrote_unless_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, [["node_modules", "a.js"], [".git", "a.js"], ["src", "a.js"], [".hidden", "a.js"], ["b.ts"]])
    assert glob("**/*.js") == ["src/a.js"]
    assert glob("**/*.{js,ts}") == ["b.ts", "src/a.js"]
    assert glob("node_modules/*") == ["node_modules/a.js"]
    assert glob(".hidden/*.js") == [".hidden/a.js"]
    assert glob("*") == ["b.ts", "src/"]
    assert glob("*.js", "src") == ["src/a.js"]
    assert glob(f"{tmp_path}/src/*") == ["src/a.js"]
    assert glob("*.py") == ["[nothing matches *.py]"]


def test_glob_says_how_many_there_are_when_it_shows_some(tmp_path: Path) -> None:
    for number in range(file_finder.NAMES + 5):
        (tmp_path / f"{number:05}").touch()
    found = glob("*")
    assert found[-1] == "[1,000 of 1,005; narrow the pattern to see the others]"
    assert found[:-1] == [f"{number:05}" for number in range(file_finder.NAMES)]


def test_a_loop_of_links_ends_by_itself(tmp_path: Path) -> None:
    make(tmp_path, [["a", "b.txt"]])
    (tmp_path / "a" / "loop").symlink_to("..")
    assert glob("**/*.txt") == ["a/b.txt"]
    assert glob("a/loop/a/*.txt") == ["a/loop/a/b.txt"]


@pytest.fixture(params=["ripgrep", "without"])
def grep(request: pytest.FixtureRequest) -> Grep:
    if request.param == "ripgrep" and not shutil.which("rg"):
        pytest.skip("ripgrep is not installed: `apt install ripgrep`")

    def search(pattern: str, path: str = ".", mode: str = "lines") -> list[str]:
        return text_search.grep(pattern, path, mode, ripgrep=request.param == "ripgrep")["text"].splitlines()

    return search


@pytest.fixture
def code(tmp_path: Path) -> Path:
    make(tmp_path, [["node_modules", "x.py"], [".secret", "x.py"], [".dot.py"]])
    (tmp_path / "a.py").write_text("import os\nx = 'é'\nos.exit(1)\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.py").write_bytes(b"x = 1\r\nos = 2\r\n")
    (tmp_path / "c.bin").write_bytes(b"os\0os\n")
    (tmp_path / "long").write_text("os" + "y" * 5000 + "\n")
    return tmp_path


def test_lines_are_told_by_path_and_number(code: Path, grep: Grep) -> None:
    assert grep(r"\bos\b") == ["a.py:1:import os", "a.py:3:os.exit(1)", "sub/b.py:2:os = 2"]
    assert grep("'.'") == ["a.py:2:x = 'é'"]
    assert grep(r"\bos\b", "sub") == ["sub/b.py:2:os = 2"]
    assert grep(r"\bos\b", "sub/b.py") == ["sub/b.py:2:os = 2"]
    assert grep("^x", mode="files") == ["a.py", "sub/b.py"]
    assert grep(r"\bos\b", mode="count") == ["a.py:2", "sub/b.py:1"]
    assert grep("nowhere") == ["[no line in . matches nowhere]"]
    assert grep("osy") == [f"long:1:os{'y' * 298}..."]


def test_an_expression_that_only_one_of_them_knows_works_with_both(code: Path, grep: Grep) -> None:
    assert grep(r"os(?=\.exit)") == ["a.py:3:os.exit(1)"]


def test_what_is_no_expression_is_said(code: Path, grep: Grep) -> None:
    with pytest.raises(Refused, match=r"'\(a' is not a regular expression: .* at character 0"):
        grep("(a")
    with pytest.raises(Refused, match="there is no lung; did you mean long"):
        grep("a", "lung")


def test_there_is_an_end_to_what_is_told(tmp_path: Path, grep: Grep) -> None:
    (tmp_path / "many").write_text("x\n" * 5000)
    found = grep("x")
    assert len(found) == text_search.LINES + 1
    assert found[-1].startswith("[the first 1,000; there may be more")


def test_an_expression_that_takes_for_ever_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_search, "SEARCH_S", 0.3)
    (tmp_path / "a").write_text("b\n" + "a" * 40 + "!\n")
    found = text_search.grep("^(a+)+$|b", ".", "lines", ripgrep=False)["text"].splitlines()
    assert found[0] == "a:1:b"
    assert found[1].startswith("[stopped after 0.3 s")


def test_what_lies_below_paths_and_patterns_is_measured(tmp_path: Path) -> None:
    make(tmp_path, [["d", "a"], ["d", "e", "b"], ["c.txt"], ["d.txt"], [".hidden", "x"]])
    (tmp_path / "d" / "link").symlink_to("/")
    (tmp_path / "again").hardlink_to(tmp_path / "c.txt")
    assert file_finder.measure(["d"]) == {"files": 3, "bytes": 5, "more": False}
    assert file_finder.measure(["*.txt", "c.txt", "again"]) == {"files": 2, "bytes": 4, "more": False}
    assert file_finder.measure(["nowhere", "*.nothing"]) == {"files": 0, "bytes": 0, "more": False}
    assert file_finder.measure(["."]) == {"files": 6, "bytes": 11, "more": False}


def test_measuring_stops_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, [[str(number)] for number in range(20)])
    monkeypatch.setattr(file_finder, "MEASURED", 10)
    measured = file_finder.measure(["."])
    assert measured["more"]
    assert 5 < measured["files"] < 15


def test_a_folder_is_told_entry_by_entry(tmp_path: Path) -> None:
    make(tmp_path, [["b", "x"], ["a.txt"]])
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("a.txt")
    assert file_reader.entries(".") == {
        "entries": [
            {"name": "b", "type": "directory", "size": 0},
            {"name": "a.txt", "type": "file", "size": 2},
            {"name": "fifo", "type": "other", "size": 0},
            {"name": "link", "type": "link", "size": 0},
        ],
        "more": 0,
    }
    with pytest.raises(Refused, match=r"a.txt is a file; read_file shows it"):
        file_reader.entries("a.txt")


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("srv/app.py", "src/app.py"),
        ("src/App.py", "src/app.py"),
        ("app.py", "src/app.py"),
        ("src/aap.py", "src/app.py"),
        ("src/nothing/like/it", ""),
    ],
)
def test_the_nearest_name_is_told(tmp_path: Path, asked: str, near: str) -> None:
    make(tmp_path, [["src", "app.py"], ["src", "other.txt"]])
    assert texts.nearest(asked) == near
