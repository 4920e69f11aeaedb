"""Every command the documentation shows is run, as in a checkout, and prints what is shown. No network, no key."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT, Block, blocks, missing, pages, steps

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
FIRST = ("README.md", "docs/start.md", "docs/guide/python.md")
"""What a newcomer reads; the commands of the other pages are run by ./check slow."""


def runnable(page: Path) -> list[Block]:
    """Those of the examples are run by their own tests."""
    if page.is_relative_to(ROOT / "examples"):
        return []
    return [block for block in blocks(page.read_text(encoding="utf-8")) if block.runs]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like one: the command, its Python, the examples."""
    place = tmp_path / "pinfold"
    (place / ".venv" / "bin").mkdir(parents=True)
    for path, words in (("pinfold", f"{sys.executable} -m pinfold"), (".venv/bin/python", sys.executable)):
        shim = place / path
        shim.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
    shutil.copytree(ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("work", "__pycache__"))
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    return place


def without_network() -> list[str]:
    """What begins a command so that it has no network, not even loopback; empty where this user may not do that."""
    if shutil.which("unshare") is None:
        return []
    tried = subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL, check=False)
    return [] if tried.returncode else ["unshare", "-n"]


def put(checkout: Path, shown: list[Block]) -> None:
    """The files a page shows, where it says they are."""
    for block in shown:
        if name := block.file:
            config = Path(os.environ["XDG_CONFIG_HOME"])
            path = config / name.removeprefix("~/.config/") if name.startswith("~") else checkout / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.body, encoding="utf-8")


def each(page: Path) -> Any:
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=[] if name in FIRST else pytest.mark.slow)


@pytest.mark.parametrize("page", [each(page) for page in pages() if runnable(page)])
def test_commands_do_what_the_page_shows(page: Path, checkout: Path) -> None:
    text = page.read_text(encoding="utf-8")
    put(checkout, blocks(text))
    alone = without_network()
    for block in runnable(page):
        for step in steps(block.body):
            done = subprocess.run(
                [*alone, "bash", "-c", step.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=200,
            )
            assert done.returncode == block.code, f"$ {step.command}\n{done.stdout}"
            assert not missing(step.shown, done.stdout.splitlines()), f"$ {step.command}\n{done.stdout}"


def test_a_line_that_is_not_printed_is_missed() -> None:
    printed = ["[ok, 0.05 s; variables: added x]", "last"]
    assert missing(("[ok, 0.31 s; variables: added x]", "", "la..."), printed) == []
    assert missing(("[ok, 0.31 s]",), printed) == ["[ok, 0.31 s]"]
    assert missing(("last", "[ok, 0.05 s; ...]"), printed) == ["[ok, 0.05 s; ...]"]
