"""SKILL.md is read as the open format has it, and what is wrong with one is said in a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.tokens.o200k import encoding
from skills_ref import validate

from pinfold.tools import BadTool
from pinfold.tools.skills.skill_file import LINE_TOKENS, SKILL, SkillFile, format_skill, parse_skill, skills_prompt

pytestmark = pytest.mark.unit

FULL = b"""\
---
name: pdf-forms
description: >
  Fill in PDF forms.
  Use when a PDF has fields.
license: MIT
compatibility: Needs poppler.
allowed-tools: Bash(git:*) Read
metadata:
  version: 1.0
  author: someone
---

# Forms

Do it so.
"""


def test_a_file_with_every_field_of_the_format_is_read() -> None:
    assert parse_skill(FULL, "pdf-forms") == SkillFile(
        name="pdf-forms",
        description="Fill in PDF forms. Use when a PDF has fields.",
        body="# Forms\n\nDo it so.",
        metadata={"version": "1.0", "author": "someone"},
        allowed_tools=("Bash(git:*)", "Read"),
    )


@pytest.mark.parametrize(
    ("data", "folder", "words"),
    [
        (b"# no front matter", "a", "must begin with `---`"),
        (b"---\nname: a\n", "a", "must begin with `---`"),
        (b"---\nname: a\n---\n", "a", "description: say in a sentence"),
        (b"---\nname: B\ndescription: x\n---\n", "B", "'B' cannot be a skill's name"),
        (b"---\nname: a--b\ndescription: x\n---\n", "a--b", "cannot be a skill's name"),
        (b"---\nname: %s\ndescription: x\n---\n" % (b"a" * 65), "a" * 65, "up to 64"),
        (b"---\nname: a\ndescription: x\n---\n", "b", "must be that of its folder, 'b'"),
        (b"---\nname: a\ndescription: %s\n---\n" % (b"x" * 1025), "a", "1,024 is the most"),
        (b"---\nname: a\ndescription: x\ncompatibility: %s\n---\n" % (b"x" * 501), "a", "500 is the most"),
        (b"---\nname: a\ndescription: x\nmetadata: [1]\n---\n", "a", "metadata: should be an object"),
        (b"---\nname: a\ndescription: x: y: z\n---\n", "a", "line 2"),
        (b"---\nname: a\ndescription: !!python/object:os.system x\n---\n", "a", "could not determine a constructor"),
        (b"---\nname: a\ndescription: x\n---\n\xff\xfe", "a", "not UTF-8"),
    ],
)
def test_a_broken_file_is_one_line_that_says_what_to_fix(data: bytes, folder: str, words: str) -> None:
    with pytest.raises(BadTool) as caught:
        parse_skill(data, folder)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_we_write_is_valid_and_reads_back(tmp_path: Path) -> None:
    skill = SkillFile(
        name="calculate-rsi", description='Says "so": yes\\no # ä', metadata={"pinfold-tool": "x"}, body="# A\n\nB"
    )
    (tmp_path / skill.name).mkdir()
    (tmp_path / skill.name / SKILL).write_text(format_skill(skill), encoding="utf-8")
    assert validate(tmp_path / skill.name) == []
    assert parse_skill(format_skill(skill).encode(), skill.name) == skill


@pytest.mark.parametrize(
    "description",
    [
        "Extract text and tables from PDF files, fill forms, merge documents. " * 10,
        "Berechnet den Index der relativen Stärke für Preisreihen und vergleicht Zeiträume miteinander. " * 5,
        "価格データから相対力指数を計算します。" * 20,
        "Рассчитывает индекс относительной силы по ценам закрытия за период. " * 8,
        "a1b2c3d4e5f6 0x7fffdeadbeef 9876543210 {}[]()<>=+-*/ " * 10,
        "🚀 fast ⚡ data 📊 " * 30,
    ],
)
@pytest.mark.parametrize("name", ["pdf", "a-rather-long-name-of-a-skill-about-quarterly-revenue-reports"])
def test_a_skill_costs_at_most_forty_tokens_of_prompt_whatever_its_description(name: str, description: str) -> None:
    one, two = ([(f"{name}", description)] * count for count in (1, 2))
    tokens = [len(encoding().encode(skills_prompt(listed, (), "/mnt/skills"))) for listed in (one, two)]
    assert tokens[1] - tokens[0] <= LINE_TOKENS


def test_a_short_description_is_told_whole_and_none_costs_nothing() -> None:
    assert "- pdf: Fill in PDF forms.\n" in skills_prompt([("pdf", "Fill in PDF forms.")], (), "/mnt/skills")
    assert skills_prompt((), (), "/mnt/skills") == ""
