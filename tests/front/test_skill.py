"""`pinfold skill` as a person uses it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from skills_ref import validate
from tests.conftest import Ran

from pinfold.app.trust.skills import skills_folder

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Pinfold = Callable[..., Ran]
SOURCE = '''\
def double(x: int) -> int:
    """Double a number.

    >>> double(2)
    4
    """
    return 2 * x
'''


def test_a_new_skill_is_valid_listed_and_trusted_until_it_changes(pinfold: Pinfold) -> None:
    assert pinfold("skill", "new", "weekly-report", "--description", "Write the weekly report.").code == 0
    folder = skills_folder() / "weekly-report"
    assert validate(folder) == []
    (row,) = [json.loads(line) for line in pinfold("skill", "list", "--json").out.splitlines()]
    assert row == {
        "name": "weekly-report",
        "place": "yours",
        "state": "trusted",
        "description": "Write the weekly report.",
    }
    (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text() + "More.\n")
    assert "changed" in pinfold("skill", "list").out
    assert pinfold("skill", "trust", "weekly-report").code == 2  # nobody was asked
    ran = pinfold("skill", "trust", "weekly-report", "--yes")
    assert "More." in ran.out
    assert "weekly-report is trusted until one of its files changes" in ran.err
    assert "trusted" in pinfold("skill", "list").out
    assert pinfold("skill", "remove", "weekly-report").code == 0
    assert pinfold("skill", "list").out == ""


def test_a_skill_of_a_folder_is_added_after_it_was_shown(pinfold: Pinfold, tmp_path: Path) -> None:
    folder = tmp_path / "pdf-forms"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: pdf-forms\ndescription: Fill forms.\n---\nSo.\n")
    (folder / "scripts/fill.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    ran = pinfold("skill", "add", str(folder), "--yes")
    assert (ran.code, "argparse" in ran.out) == (0, True)
    assert pinfold("skill", "test", "pdf-forms").out == "ok     scripts/fill.py --help\n"
    assert "already have a skill 'pdf-forms'" in pinfold("skill", "add", str(folder), "--yes").err
    assert "So." in pinfold("skill", "show", "pdf-forms").out
    (folder / "SKILL.md").write_text("no front matter")
    assert "is not a skill: pdf-forms/SKILL.md: it must begin with" in pinfold("skill", "add", str(folder), "--yes").err


def test_a_skill_of_the_project_is_listed_as_untrusted_until_the_folder_is_trusted(
    pinfold: Pinfold, workspace: Path
) -> None:
    assert pinfold("skill", "new", "deploy", "--here").code == 0
    assert validate(workspace / ".agents/skills/deploy") == []
    assert "untrusted" in pinfold("skill", "list").out
    assert "pinfold trust" in pinfold("skill", "trust", "deploy").err
    assert pinfold("trust", "--yes").code == 0
    assert pinfold("skill", "list").out.split()[:3] == ["deploy", "project", "trusted"]


def test_a_function_is_promoted_and_tested_by_hand(pinfold: Pinfold, workspace: Path) -> None:
    (workspace / "a.py").write_text(SOURCE)
    refused = pinfold("skill", "promote", "a.py", "double")
    assert (refused.code, "return 2 * x" in refused.out) == (2, True)
    assert not skills_folder().exists()
    ran = pinfold("skill", "promote", "a.py", "double", "--name", "twice", "--example", '{"x": 5}', "--yes")
    assert ran.code == 0, ran.err
    assert "twice(x=5) = 10  (an example)" in ran.out
    assert pinfold("skill", "test", "twice").out == "ok     twice(x=2)\nok     twice(x=5)\n"
    assert validate(skills_folder() / "twice") == []
    again = pinfold("skill", "promote", "a.py", "double", "--name", "twice", "--yes")
    assert (again.code, again.err) == (2, "pinfold: there is already a tool called 'twice'; choose another name\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("show", "nothing"), "no skill is called 'nothing'"),
        (("new", "Not A Name"), "cannot be a skill's name"),
        (("remove", "../config.toml"), "you have no skill"),
        (("add", "missing"), "is not a folder"),
        (("promote", "missing.py", "f"), "missing.py cannot be read"),
        (("promote", "a.py", "f", "--example", "{"), "--example is JSON"),
    ],
)
def test_wrong_words_get_one_line(pinfold: Pinfold, workspace: Path, args: tuple[str, ...], words: str) -> None:
    (workspace / "a.py").write_text(SOURCE)
    ran = pinfold("skill", *args)
    assert ran.code in (1, 2)
    assert words in ran.err
    assert len(ran.err.splitlines()) == 1
