"""The page for everyone: no violations that axe-core knows, in light, dark and on a phone; and all of it by keyboard."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.front.server.served import Served

pytestmark = [
    pytest.mark.integration,
    pytest.mark.browser,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
expect.set_options(timeout=60_000)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 375, "height": 740}},
}


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    return serve("keyboard", "--mode", "ask")


def open_page(context: BrowserContext, served: Served, path: str = "") -> Page:
    context.set_default_timeout(60_000)
    context.add_init_script(f"sessionStorage.setItem('pinfold-token', '{served.token}')")
    page = context.new_page()
    page.goto(f"{served.url}/#/{path}")
    return page


def violations(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def run_cells(served: Served) -> str:
    """A session with an answer, an error, a changed file, and a question that waits."""
    with served.client() as client:
        session = client.post("/api/sessions", json={}).json()["id"]
        client.post(f"/api/sessions/{session}/commands", json={"kind": "Say", "text": "What is x?"})
        code = "from pathlib import Path\n_ = Path('made.txt').write_text('a')\nprint('\\n'.join(map(str, range(99))))\n1 / 0"
        client.post(f"/api/sessions/{session}/commands", json={"kind": "Execute", "code": code})
        client.post(f"/api/sessions/{session}/commands", json={"kind": "Say", "text": "Leave a note"})
    return session


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_no_violation(look: str, browser: Browser, served: Served, axe: str) -> None:
    context = browser.new_context(**LOOKS[look])
    try:
        page = open_page(context, served)
        expect(page.get_by_role("heading", name="What would you like to find out?")).to_be_visible()
        assert violations(page, axe) == []
        page.goto(f"{served.url}/#/{run_cells(served)}")
        expect(page.get_by_role("region", name="Approval needed")).to_be_visible()
        if look == "phone":
            page.get_by_role("button", name="Side panel").click()
            assert page.evaluate("document.documentElement.scrollWidth") == 375
        for tab in ("Timeline", "Variables", "Files", "Sent"):
            page.get_by_role("tab", name=tab).click()
            expect(page.get_by_role("tabpanel", name=tab)).not_to_contain_text("Loading")
            assert violations(page, axe) == []
        page.keyboard.press("Alt+h")
        expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        assert violations(page, axe) == []
    finally:
        context.close()


def test_axe_finds_what_is_wrong(page: Page, axe: str) -> None:
    """The control: the check can fail."""
    page.set_content("<html lang=en><title>x</title><main><button></button><img src=''></main>")
    assert {one.partition(":")[0] for one in violations(page, axe)} >= {"button-name", "image-alt"}


def test_one_asks_approves_undoes_and_uploads_by_keyboard(
    context: BrowserContext, served: Served, tmp_path: Path, folder: Path
) -> None:
    page = open_page(context, served)
    keys = page.keyboard
    expect(page.get_by_role("heading", name="What would you like to find out?")).to_be_visible()
    keys.press("Alt+m")
    keys.type("What is x?")
    keys.press("Enter")
    conversation = page.get_by_label("Conversation")
    expect(conversation.get_by_text("x is 1.")).to_be_visible()
    keys.press("Alt+m")
    keys.type("Leave a note")
    keys.press("Enter")
    expect(page.get_by_role("region", name="Approval needed")).to_be_visible()
    keys.press("Alt+m")
    while page.evaluate("document.activeElement.textContent") != "Allow once":
        keys.press("Shift+Tab")
    keys.press("Enter")
    expect(conversation.get_by_text("Written.")).to_be_visible()
    assert (folder / "workspace" / "AGENTS.md").exists()

    expect(page.get_by_role("button", name="Stop")).to_have_count(0)  # else there is nothing to undo yet
    keys.press("Alt+z")
    expect(
        conversation.get_by_text(re.compile("^Undid cell 1. Variables and files are as at the start."))
    ).to_be_visible()
    keys.press("Alt+y")
    expect(conversation.get_by_text(re.compile("^Redid"))).to_be_visible()

    own = tmp_path / "own.txt"
    own.write_text("mine")
    keys.press("Alt+3")
    expect(page.get_by_role("tab", name="Files")).to_be_focused()
    with page.expect_file_chooser() as chooser:
        while page.evaluate("document.activeElement.textContent.trim()") != "Upload":
            keys.press("Tab")
        keys.press("Enter")
    chooser.value.set_files(own)
    expect(page.get_by_role("list", name="Files").get_by_text("own.txt")).to_be_visible()
