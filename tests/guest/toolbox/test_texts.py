"""Files as texts: edits that keep every other byte, writes that are whole or not there at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pinfold.guest.toolbox import file_reader, file_writer, texts
from pinfold.guest.toolbox.file_writer import diff
from pinfold.guest.toolbox.program_io import Refused

pytestmark = pytest.mark.unit
letters = st.text(st.sampled_from("ab é\t\n\r"), max_size=60)
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "cp1252")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def edit(path: Path, old: str, new: str, matches: int = 1) -> str:
    return file_writer.edit(str(path), old, new, matches, dry=False)["diff"]


def refusal(path: Path, old: str, new: str) -> str:
    """Why it was not changed; empty if it was."""
    try:
        edit(path, old, new)
    except Refused as refused:
        return str(refused)
    return ""


def write(path: str | Path, content: str, *, dirs: bool = True, dry: bool = False) -> str:
    return file_writer.write(str(path), content, dirs, dry)["text"]


def read(path: str | Path, first: int = 1, lines: int | None = None, most: int = 10_000) -> str:
    return file_reader.read(str(path), first, lines, most)["text"]


@given(
    before=letters,
    old=st.text(st.sampled_from("xyz\n"), min_size=1, max_size=8),
    new=letters,
    after=letters,
    encoding=st.sampled_from(ENCODINGS),
)
def test_an_edit_and_its_reverse_leave_the_bytes_as_they_were(
    before: str, old: str, new: str, after: str, encoding: str
) -> None:
    text = before + old + after
    assume(text.count(old) == 1 and new and old != new)
    # A text whose bytes say another encoding is another text.
    data = text.encode(encoding)
    was = texts.decode_text(data)
    assume(was.text == text and not was.crlf and "\r\n" not in old + new)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.write_bytes(data)
        refused = refusal(path, old, new)
        if refused:
            assert "cannot hold" in refused or "2 times" in refused
            assert path.read_bytes() == data
            return
        changed = texts.Text(before + new + after, was.encoding, was.mark)
        assert path.read_bytes() == changed.data("a")
        again = texts.decode_text(path.read_bytes())
        assume((again.text, again.encoding) == (changed.text, was.encoding) and not again.crlf)
        refused = refusal(path, new, old)
        assert "times in" in refused if refused else path.read_bytes() == data


@pytest.mark.parametrize(
    ("data", "old", "new", "becomes"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", "b\nc", "d", b"a\r\nd\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb", "d\ne", b"d\r\ne\nc\r\n"),
        (b"\xef\xbb\xbfkey = 1\n", "key = 1", "key = 2", b"\xef\xbb\xbfkey = 2\n"),
        ("é = 1\n".encode("latin-1"), "é = 1", "é = 2", "é = 2\n".encode("latin-1")),
        ("ä\n".encode("utf-16"), "ä", "ö", "ö\n".encode("utf-16")),
        (b"no end", "end", "newline", b"no newline"),
    ],
    ids=["crlf", "mixed", "mixed-crlf", "bom", "latin-1", "utf-16", "no-newline"],
)
def test_an_edit_keeps_line_ends_marks_and_encoding(
    tmp_path: Path, data: bytes, old: str, new: str, becomes: bytes
) -> None:
    (tmp_path / "a").write_bytes(data)
    edit(tmp_path / "a", old, new)
    assert (tmp_path / "a").read_bytes() == becomes


def test_what_an_encoding_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("é = 1\n".encode("latin-1"))
    with pytest.raises(Refused, match=r"a is cp1252 and cannot hold '→' \(U\+2192\)"):
        edit(tmp_path / "a", "1", "→")
    assert (tmp_path / "a").read_bytes() == "é = 1\n".encode("latin-1")


@pytest.mark.parametrize(
    ("old", "matches", "says"),
    [
        ("x = 1", 1, r"old is 2 times in a, not 1: at lines 1, 3; .* or expected_matches=2 to change all"),
        ("\ty = 2", 1, r"the nearest is line 2, .*\n2: ····y·=·2\nand old is:\n→y·=·2"),
        ("z = 1\nx = 1", 1, r"the nearest is lines? "),
        ("nothing of the kind", 1, r"nor anything like it"),
        ("", 1, r"old is empty"),
        ("x = 1", 3, r"not 3"),
    ],
)
def test_an_edit_that_does_not_fit_says_what_is_there(tmp_path: Path, old: str, matches: int, says: str) -> None:
    (tmp_path / "a").write_text("x = 1\n    y = 2\nx = 1\n")
    with pytest.raises(Refused, match=f"(?s){says}"):
        edit(tmp_path / "a", old, "new", matches)
    assert (tmp_path / "a").read_text() == "x = 1\n    y = 2\nx = 1\n"


def test_an_edit_of_several_places_changes_all_and_returns_the_diff(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\nx\n")
    assert edit(tmp_path / "a", "x", "z", 2) == "--- a\n+++ a\n@@ -1,3 +1,3 @@\n-x\n+z\n y\n-x\n+z\n"


def test_a_write_keeps_mode_links_and_owner(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old\n")
    path.chmod(0o751)
    (tmp_path / "link").symlink_to("run.sh")
    (tmp_path / "other").hardlink_to(path)
    write(tmp_path / "link", "new\n")
    assert path.read_text() == (tmp_path / "other").read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert (tmp_path / "link").is_symlink()


def test_a_new_file_has_the_mode_that_others_get(tmp_path: Path) -> None:
    write("new", "x")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write("a", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize(
    ("path", "dirs", "says"),
    [
        ("folder", True, "folder is a folder; name a file in it"),
        ("file/below", True, "file is a file, not a folder"),
        ("missing/a", False, "there is no .*missing.*; create_dirs=true makes it"),
        ("fifo", True, "is not a regular file"),
        ("nul\0", True, "cannot hold a NUL"),
    ],
)
def test_what_cannot_be_written_says_why(tmp_path: Path, path: str, dirs: bool, says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Refused, match=says):
        write(path, "x", dirs=dirs)


def test_a_dry_write_touches_nothing(tmp_path: Path) -> None:
    assert write("deep/new", "x\n", dry=True).startswith("wrote deep/new: 2 bytes, 1 line")
    assert list(tmp_path.iterdir()) == []


@given(before=letters, after=letters)
def test_two_texts_have_no_diff_only_when_they_are_the_same(before: str, after: str) -> None:
    assert (diff(before, after, "a", "b") == "") == (before == after)


def test_texts_too_long_to_compare_are_not(tmp_path: Path) -> None:
    before = "".join(f"{number}\n" for number in range(20_000))
    after = "".join(f"{-number}\n" for number in range(1, 30_000))
    assert "20,000 lines replaced by 29,999" in diff(before, after, "a", "b")


@pytest.mark.parametrize(
    ("first", "lines", "most", "shown"),
    [
        (1, None, 10_000, "1\n2\n3\n4\n5\n"),
        (2, 2, 10_000, "2\n3\n[lines 2 to 3 of 5; go on with start_line=4]"),
        (4, None, 10_000, "4\n5\n[lines 4 to 5 of 5]"),
        (1, None, 5, "1\n2\n[lines 1 to 2 of 5; go on with start_line=3]"),
        (
            1,
            None,
            1,
            "1\n[line 1 of 5 is longer than this and was cut; python can read all of it; start_line=2 goes on behind it]",
        ),
    ],
)
def test_a_page_says_which_lines_it_is(tmp_path: Path, first: int, lines: int | None, most: int, shown: str) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n4\n5\n")
    assert read("a", first, lines, most) == shown


@given(st.lists(st.text(st.sampled_from("ab"), max_size=5), min_size=1, max_size=30), st.booleans(), st.integers(1, 40))
def test_pages_one_after_the_other_are_the_whole_file(lines: list[str], ended: bool, most: int) -> None:
    text = "\n".join(lines) + ("\n" if ended else "")
    assume(text and all(len(line) < most for line in lines))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.write_text(text)
        first, whole = 1, b""
        while True:
            with path.open("rb") as file:
                page = file_reader.Page(file, 0, first, None, most)
            assert page.counted
            assert page.total == len(text.splitlines())
            if not page.lines:
                break
            whole += b"".join(page.lines)
            first += len(page.lines)
    assert whole == text.encode()


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.pdf", b"%PDF-1.7 x", r"a.pdf is a PDF \(10 bytes\), not text; use python"),
        ("a.png", b"\x89PNG\r\n\x1a\n", "is a PNG image"),
        ("a.zip", b"PK\x03\x04", "is a zip archive"),
        ("a.xlsx", b"PK\x03\x04", "is an Excel workbook .*; data_view shows it"),
        ("a.bin", b"\x00\x01\x02\xff", "is binary"),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Refused, match=says):
        read(name)
    with pytest.raises(Refused, match=says):
        edit(tmp_path / name, "a", "b")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", "[a is empty]"),
        ("é\n".encode("latin-1"), "é\n[the file is not UTF-8 and was read as cp1252]"),
        (b"a\r\nb\r\n", "a\nb\n[lines end in CRLF]"),
        ("ä\n".encode("utf-16"), "ä\n[the file is utf-16-le]"),
        ("\ufeffä\n".encode(), "ä\n"),
    ],
)
def test_other_encodings_are_read_and_said(tmp_path: Path, data: bytes, shown: str) -> None:
    (tmp_path / "a").write_bytes(data)
    assert read("a") == shown


def test_a_file_of_any_size_is_read_in_little_memory(tmp_path: Path, peak: Callable[[], int]) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.write(b"a line\n" * 20_000)
        file.truncate(10 << 30)  # a hole, read as one long line
        file.seek(10 << 30)
        file.write(b"\nlast\n")
    before = peak()
    assert read("big", lines=1).startswith("a line\n[lines 1 to 1 of more than 20,000; go on with")
    assert read("big", first=20_001).startswith("\0\0\0")
    assert peak() - before < 32 << 20
