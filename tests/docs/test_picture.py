"""The recorder of terminal pictures: a real program in a real pseudo-terminal, drawn as it stood on the screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.docs.pages import ROOT, blocks, missing

pytestmark = pytest.mark.integration

PROGRAM = r"""
print("\x1b[1;31m<red & bold>\x1b[0m  two  blanks")
print(input("name? ").upper())
print("\x1b[7mturned\x1b[0m")
"""
README, SESSION, MAKER = ROOT / "README.md", ROOT / "docs" / "session", ROOT / "docs" / "make_picture.py"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_is_what_the_screen_shows(tmp_path: Path) -> None:
    out, text = tmp_path / "screen.svg", tmp_path / "screen.txt"
    argv = [str(out), "--size", "40x6", "--text", str(text), "--type", r"ann\r", "--title", "A & B"]
    subprocess.run([sys.executable, str(MAKER), *argv, "--", sys.executable, "-c", PROGRAM], check=True, timeout=200)
    assert text.read_text(encoding="utf-8").splitlines() == ["<red & bold>  two  blanks", "name? ann", "ANN", "turned"]
    root = ET.parse(out).getroot()
    shown = {node.text: node for node in root.iter(f"{SVG}text")}
    red = shown["<red\N{NO-BREAK SPACE}&\N{NO-BREAK SPACE}bold>"]
    assert (red.get("fill"), red.get("font-weight")) == ("#e06c75", "bold")
    # Blanks count: what comes after them stands in its own column, and text of one row in one line.
    after = shown["two\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}blanks"]
    assert float(after.get("x", "0")) - float(red.get("x", "0")) == pytest.approx(14 * 8.4, abs=0.1)
    assert after.get("y") == red.get("y")
    assert len([node for node in root.iter(f"{SVG}rect") if node.get("fill") == "#c8ccd4"]) == 1
    assert [node.text for node in root.iter(f"{SVG}title")] == ["A & B"]


@pytest.mark.slow
def test_the_chat_of_the_readme_is_what_the_picture_and_the_program_show(
    tmp_path: Path, workspace: Path, data_python: Path
) -> None:
    (told,) = [block.body for block in blocks(README.read_text(encoding="utf-8")) if block.language == "text"]
    root = ET.parse(SESSION / "chat.svg").getroot()
    drawn = ["".join(node.itertext()).replace("\N{NO-BREAK SPACE}", " ") for node in root.iter(f"{SVG}text")]
    assert len(drawn) > 20
    assert [piece for piece in drawn if piece not in told] == []
    # Played back, with the words the model said then; the code runs now.
    shutil.copy(ROOT / "examples" / "sales-report" / "sales.csv", workspace)
    asked = [line.removeprefix("> ") for line in told.splitlines() if line.startswith("> ")]
    typed = [piece for line in asked for piece in ("--type", rf"{line}\r")]
    screen = tmp_path / "screen.txt"
    program = [sys.executable, "-m", "pinfold", "--mode", "auto", "--model", f"replay:{SESSION / 'recording.jsonl'}"]
    subprocess.run(
        [
            sys.executable,
            str(MAKER),
            str(tmp_path / "out.svg"),
            "--size",
            "96x40",
            "--history",
            "--text",
            str(screen),
            *typed,
            "--",
            *program,
        ],
        cwd=workspace,
        env={**os.environ, "PINFOLD_SANDBOX_PYTHON": str(data_python)},
        check=True,
        timeout=200,
    )
    *lines, status = told.splitlines()
    assert status.startswith("builtin · auto · ")
    assert missing(tuple(lines), screen.read_text(encoding="utf-8").splitlines()) == []
