"""bench/house.py on a small house of its own: each figure counts what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.house import is_gerund, is_participle, measure

pytestmark = pytest.mark.unit

CONTRACT = '[[tool.importlinter.contracts]]\ntype = "layers"\nlayers = ["pinfold.app.top", "pinfold.app.bottom"]\n'
FILES = {
    "__init__.py": "",
    "a.py": '"""Words.\n\nMore of them.\n"""\n\nfrom pinfold import b\n\n\ndef told() -> int:\n    # a comment\n    return b.X\n',
    "b.py": "from typing import TYPE_CHECKING, Any\n\nif TYPE_CHECKING:\n    from pinfold import c\n\nX: Any = 1\n",
    "c.py": "def late() -> None:\n    from .reading import y  # noqa: PLC0415\n\n    try:\n        y()\n    except Exception:\n        pass\n",
    "reading.py": "def y() -> None:\n    from . import c\n\n    print(c)\n",
}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "pinfold"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(CONTRACT, encoding="utf-8")
    return tmp_path


def test_each_figure_is_counted(house: Path) -> None:
    figures = {figure.what: figure for figure in measure(house)}
    assert {what: figure.value for what, figure in figures.items()} == {
        "code lines": 3 + 4 + 6 + 3,
        "files": 5,
        "modules with one importer, under 80 lines": 3,
        "modules of 50 lines or fewer": 4,
        "longest file": 11,
        "longest function": 7,
        "modules named by a gerund or participle": 1,
        "functions named by a participle": 1,
        "most files in one folder": 5,
        "import circles": 1,
        "layers in app": 2,
        "lines with Any": 1,
        "broad excepts": 1,
        "lint ignores": 1,
    }
    assert figures["import circles"].places == ["pinfold.c <-> pinfold.reading"]
    assert figures["import circles"].holds is False
    assert figures["files"].holds is True


def test_a_house_without_a_contract_for_app_misses_that_goal(house: Path) -> None:
    (house / "pyproject.toml").write_text("[tool.importlinter]\ncontracts = []\n", encoding="utf-8")
    (layers,) = [figure for figure in measure(house) if figure.what == "layers in app"]
    assert (layers.value, layers.holds, layers.shown) == (None, False, "none")


@pytest.mark.parametrize(
    ("word", "gerund", "participle"),
    [
        ("reading", True, False),
        ("encoding", False, False),
        ("told", False, True),
        ("capped", False, True),
        ("feed", False, False),
        ("wait_for_told", False, False),
    ],
)
def test_names_are_told_apart(word: str, gerund: bool, participle: bool) -> None:
    assert (is_gerund(word), is_participle(word)) == (gerund, participle)
