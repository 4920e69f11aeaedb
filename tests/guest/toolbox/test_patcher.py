"""Patches: what a diff says becomes so, all of it or nothing."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.guest.toolbox import patcher
from pinfold.guest.toolbox.file_writer import diff
from pinfold.guest.toolbox.patches import parse_patch
from pinfold.guest.toolbox.program_io import Refused

pytestmark = pytest.mark.unit
lines = st.lists(st.text(st.sampled_from("ab+- @\\\r"), max_size=3), max_size=25)
whole = st.tuples(lines.map("\n".join), st.sampled_from(["", "\n"])).map("".join)
SOURCE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def apply(patch: str) -> str:
    return patcher.apply(patch, dry=False)["text"]


@given(before=whole, after=whole)
def test_a_diff_applied_to_one_text_gives_the_other(before: str, after: str) -> None:
    if not before or not after:
        return
    made = diff(before, after, "a/file", "b/file")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("file").write_bytes(before.encode())
        if made:
            apply(made)
        assert Path("file").read_bytes() == after.encode()


@given(before=whole, after=whole)
def test_what_git_writes_is_applied_as_git_applies_it(before: str, after: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("old").mkdir()
        Path("new").mkdir()
        Path("old/file").write_bytes(before.encode())
        Path("new/file").write_bytes(after.encode())
        made = subprocess.run(
            ["git", "diff", "--no-index", "--no-color", "--no-prefix", "old/file", "new/file"],
            capture_output=True,
            check=False,
        ).stdout.decode()
        if not made or "Binary" in made:
            return
        Path("file").write_bytes(before.encode())
        apply(made.replace("old/file", "a/file").replace("new/file", "b/file"))
        assert Path("file").read_bytes() == after.encode()


def test_files_are_added_changed_moved_and_deleted_in_one_patch(tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text(SOURCE)
    (tmp_path / "gone.txt").write_text("x\n")
    (tmp_path / "old name.txt").write_text("same\nline\n")
    (tmp_path / "old name.txt").chmod(0o755)
    said = apply(
        "diff --git a/kept.py b/kept.py\nindex 1..2 100644\n--- a/kept.py\n+++ b/kept.py\n"
        "@@ -1,2 +1,2 @@\n def one():\n-    return 1\n+    return 11\n"
        "diff --git a/made/new.sh b/made/new.sh\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/made/new.sh\n"
        "@@ -0,0 +1 @@\n+echo\n\\ No newline at end of file\n"
        "diff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/old name.txt b/b/new name.txt\nsimilarity index 90%\nrename from old name.txt\nrename to b/new name.txt\n"
        "--- a/old name.txt\t\n+++ b/b/new name.txt\t\n@@ -1,2 +1,2 @@\n same\n-line\n+row\n"
    )
    assert said == (
        "changed kept.py (+1 -1)\nadded made/new.sh (1 lines)\ndeleted gone.txt\n"
        "changed old name.txt -> b/new name.txt (+1 -1)"
    )
    assert (tmp_path / "kept.py").read_text() == SOURCE.replace("return 1\n", "return 11\n")
    assert (tmp_path / "made/new.sh").read_bytes() == b"echo"
    assert (tmp_path / "made/new.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "b/new name.txt").read_text() == "same\nrow\n"
    assert (tmp_path / "b/new name.txt").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "gone.txt").exists()
    assert not (tmp_path / "old name.txt").exists()


def test_the_form_with_begin_and_end_finds_its_places_by_the_lines_around(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        pass\n"
    )
    (tmp_path / "gone").write_text("x")
    apply(
        "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@ class B:\n@@     def f(self):\n-        pass\n+        return 1\n"
        "*** Add File: new.txt\n+one\n+\n+two\n*** Delete File: gone\n*** End Patch"
    )
    assert (tmp_path / "b.py").read_text() == (
        "class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        return 1\n"
    )
    assert (tmp_path / "new.txt").read_text() == "one\n\ntwo\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.py", "new.txt"]


def test_lines_go_to_the_end_of_a_file_when_the_patch_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\nx\n")
    apply("*** Begin Patch\n*** Update File: a\n@@\n x\n+end\n*** End of File\n*** End Patch\n")
    assert (tmp_path / "a").read_text() == "x\ny\nx\nend\n"


@pytest.mark.parametrize(
    "patch",
    [
        "@@ -5,2 +5,2 @@\n def two():\n-    return 2\n+    return 22\n",
        "@@ -50,2 +50,2 @@\n def two():\n-    return 2\n+    return 22\n",
        "@@ -5,9 +5,1 @@\n def two():\n-    return 2\n+    return 22\n",
        "@@ @@\n def two():\n-    return 2\n+    return 22\n",
        "@@ -5,2 +5,2 @@\n def two():   \n-    return 2\n+    return 22\n",
        "@@ -3,4 +3,4 @@\n\n\n def two():\n-    return 2\n+    return 22\n",
    ],
    ids=["right", "wrong-line", "miscounted", "no-numbers", "white-space", "bare-blank-lines"],
)
def test_a_hunk_that_fits_in_one_place_only_is_applied_there(tmp_path: Path, patch: str) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    apply(f"--- a/a.py\n+++ b/a.py\n{patch}")
    assert (tmp_path / "a.py").read_text() == SOURCE.replace("return 2", "return 22")


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        (
            "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n def one():\n-    return 9\n+    return 3\n",
            r"hunk 1 of a.py does not fit: the nearest place is line 1; there line 2 is '    return 1', and the patch has '    return 9'",
        ),
        ("--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-x\n+y\n", r"there is no b.py; did you mean a.py\?"),
        (
            "*** Begin Patch\n*** Update File: a.py\n@@\n-\n+x\n*** End Patch",
            r"its lines are in 2 places \(lines 3, 4\)",
        ),
        ("*** Begin Patch\n*** Add File: a.py\n+x\n*** End Patch", "a.py, which is there already"),
        ("*** Begin Patch\n*** Update File: a.py\n@@ class Z\n-x\n*** End Patch", "no line 'class Z' is in the file"),
        ("hello", "this is not a patch; give a unified diff"),
        ("@@ -1 +1 @@\n-x\n+y\n", "line 1 of the patch: a hunk without a file"),
        ("diff --git a/x.png b/x.png\nGIT binary patch\nliteral 1\n", "binary change of x.png"),
        ("--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-def one():\n", "deletes a.py, but not all that is in it"),
    ],
)
def test_a_patch_that_does_not_fit_says_where_and_changes_nothing(tmp_path: Path, patch: str, says: str) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "other").write_text("1\n")
    first = "--- a/other\n+++ b/other\n@@ -1 +1 @@\n-1\n+2\n" if patch.startswith("--- ") else ""
    with pytest.raises(Refused, match=says):
        apply(first + patch)
    assert (tmp_path / "a.py").read_text() == SOURCE
    assert (tmp_path / "other").read_text() == "1\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_what_was_written_is_taken_back_when_a_later_file_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "gone").write_text("x\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/file").write_text("1\n")
    patch = (
        "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Delete File: gone\n*** Add File: made/new\n+x\n"
        f"*** Add File: {'n' * 300}\n+x\n*** End Patch"
    )
    with pytest.raises(OSError, match="nothing was changed"):
        apply(patch)
    assert (tmp_path / "a").read_text() == "1\n"
    assert (tmp_path / "gone").read_text() == "x\n"
    assert not (tmp_path / "made").exists()


def test_a_patch_without_carriage_returns_fits_a_file_that_has_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\ntwo\r\n")
    apply("--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n")
    assert (tmp_path / "a").read_bytes() == b"one\r\n2\r\n3\r\n"


def test_names_that_git_quotes_are_read(tmp_path: Path) -> None:
    (change,) = parse_patch(
        'diff --git "a/\\303\\251 \\"x\\".txt" "b/\\303\\251 \\"x\\".txt"\n'
        '--- "a/\\303\\251 \\"x\\".txt"\n+++ "b/\\303\\251 \\"x\\".txt"\n@@ -1 +1 @@\n-1\n+2\n'
    )
    assert (change.kind, change.path, change.to) == ("update", 'é "x".txt', 'é "x".txt')


def test_a_fence_and_words_around_a_patch_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    apply("```diff\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n```\n")
    apply("Subject: more\n\n---\n a | 2 +-\n\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-2\n+3\n-- \n2.39.5\n")
    assert (tmp_path / "a").read_text() == "3\n"
