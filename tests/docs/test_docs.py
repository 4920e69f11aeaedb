"""The documentation holds: what is made from the code is as the code is now, links lead somewhere, messages are real."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, anchors, blocks, links, pages, steps

from pinfold.app.trust.project_formats import keys_of
from pinfold.model import DIRECT, SERVICES, key_variables
from pinfold.policy import load_rules

pytestmark = pytest.mark.unit


def test_pages_made_from_the_code_are_as_the_code_is_now() -> None:
    made: dict[Path, str] = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["pages"]()
    stale = [str(path.relative_to(ROOT)) for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run: .venv/bin/python docs/make_reference.py"
    table = made[ROOT / "README.md"]
    assert table.count("**not run for real**") == 2
    assert "| sandbox | `namespaces` | `landlock` |" in table


def test_the_pages_of_a_checkout_are_found_wherever_it_is() -> None:
    if not (ROOT / "README.md").exists():
        pytest.skip("an installed copy has no pages")
    assert len(pages()) > 40


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    dead: list[str] = []
    for link in links(text):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)
    assert not dead


def test_links_that_lead_nowhere_would_be_found() -> None:
    text = "# One, two\n[a](#one-two) ![b](c.svg) `[no](link)`\n```\n[nor](this)\n```\n"
    assert list(links(text)) == ["#one-two", "c.svg"]
    assert anchors(text) == {"one-two"}


def test_a_console_block_is_commands_and_what_they_print() -> None:
    (block,) = blocks("<!-- exits 2 -->\n```console\n$ cat <<'EOF'\n$ x\nEOF\n$ x\n$ a \\\n  b  # c\nd\n```\n")
    assert (block.code, block.runs) == (2, True)
    assert [(step.command, step.shown) for step in steps(block.body)] == [
        ("cat <<'EOF'\n$ x\nEOF", ("$ x",)[:0]),
        ("x", ()),
        ("a \\\n  b  # c", ("d",)),
    ]


def test_every_message_in_the_trouble_shooting_is_one_of_the_products() -> None:
    """Each symptom is a heading of quoted pieces; all of them are texts of the source."""
    page = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
    pieces = [
        piece
        for heading in re.findall(r"^### (.+)$", page, re.MULTILINE)
        for piece in re.findall(r"`([^`]+)`", heading)
    ]
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    # Texts that are too long for a line are in two pieces there.
    whole = re.sub(r'"\s*\n\s*f?"', "", source)
    assert len(pieces) > 10
    assert [piece for piece in pieces if piece not in whole] == []


def test_the_rules_that_a_page_shows_are_valid() -> None:
    text = (ROOT / "docs" / "guide" / "security-model.md").read_text(encoding="utf-8")
    shown = [block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "[[rule]]" in block]
    assert [rule.name for block in shown for rule in load_rules(block).rules] == ["no pushing", "mail to the team"]


def test_the_example_of_an_env_file_names_exactly_the_keys_that_work() -> None:
    text = (ROOT / ".env.example").read_text("utf-8")
    named = re.findall(r"^#([A-Z_]+)=$", text, re.MULTILINE)
    taken = {name for provider in (*SERVICES, *DIRECT) for name in key_variables(provider)}
    assert sorted(named) == sorted(taken)
    assert sorted(keys_of("".join(f"{name}=k\n" for name in named).encode())) == sorted(taken)


def test_every_design_page_that_the_code_refers_to_is_there() -> None:
    places = [ROOT / "pyproject.toml", *(path for name in ("src", "bench") for path in (ROOT / name).rglob("*.py"))]
    places += [*(ROOT / "src").rglob("README.md"), *(ROOT / "bench").rglob("*.md")]
    named = {found for path in places for found in re.findall(r"docs/design/(\d{4})", path.read_text(encoding="utf-8"))}
    there = {path.name[:4] for path in (ROOT / "docs" / "design").glob("*.md")}
    assert {"0002", "0016"} <= named <= there
