"""A newcomer's way through the page: demo, plot, table, upload, approval, undo, branch, comparison, export, restart."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.conftest import DATA_PYTHON
from tests.front.server.served import Served

pytestmark = [
    pytest.mark.integration,
    pytest.mark.browser,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.skipif(not DATA_PYTHON, reason="the data environment is not built: `pinfold env build`"),
]

expect.set_options(timeout=60_000)


def say(page: Page, text: str) -> None:
    page.get_by_label("Message to the agent").fill(text)
    page.get_by_role("button", name="Send").click()


def drop(page: Page, name: str, text: str) -> None:
    """As the browser does when a file is dragged over the page and let go."""
    page.evaluate(
        """([name, text]) => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([text], name));
            for (const type of ["dragover", "drop"])
                document.querySelector(".conversation").dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer}));
        }""",
        [name, text],
    )


def outside_requests(page: Page, url: str) -> list[str]:
    """Addresses that the page asks elsewhere."""
    found: list[str] = []
    page.on(
        "request",
        lambda request: None if request.url.startswith((url, "blob:", "data:")) else found.append(request.url),
    )
    return found


def test_a_newcomer_goes_from_the_demo_to_a_comparison_and_an_export(
    page: Page, serve: Callable[..., Served], folder: Path
) -> None:
    served = serve("newcomer")
    outside = outside_requests(page, served.url)
    page.goto(f"{served.url}/#code={served.code}")

    # The demo is one click away, and answers with a table and a plot.
    page.get_by_role("button", name=re.compile("Summarise a table")).click()
    conversation = page.get_by_label("Conversation")
    expect(conversation.get_by_text("Online leads.")).to_be_visible()
    expect(conversation.get_by_role("img", name="Cell 2 display 1")).to_be_visible()
    expect(conversation.get_by_role("cell", name="Online").first).to_be_visible()
    first = page.url
    with page.expect_download() as saved:
        conversation.get_by_role("button", name="Save cell 2 display 1 as svg").click()
    assert saved.value.suggested_filename == "cell-2-display-1.svg"
    assert Path(saved.value.path()).read_bytes().startswith(b"<svg")

    # The table pages and sorts where the data is.
    page.get_by_role("button", name="Explore sales").click()
    rows = page.get_by_role("region", name="Rows of sales")
    rows.get_by_role("button", name="units").click()
    expect(rows.get_by_role("columnheader", name="units")).to_have_attribute("aria-sort", "ascending")
    page.get_by_label("Filter sales").fill("kettle")
    expect(rows.get_by_role("cell", name="kettle").first).to_be_visible()
    expect(rows.get_by_role("cell", name="lamp")).to_have_count(0)
    page.get_by_role("button", name="Close", exact=True).click()

    # A file of one's own is added, and what a cell changed can be seen.
    page.get_by_role("tab", name="Files").click()
    page.locator("#upload").set_input_files({"name": "own.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"})
    expect(page.get_by_role("list", name="Files").get_by_text("own.csv")).to_be_visible()
    assert (folder / "pinfold-demo" / "own.csv").read_bytes() == b"a,b\n1,2\n"
    drop(page, "dropped.txt", "let go")
    expect(page.get_by_role("list", name="Files").get_by_text("dropped.txt")).to_be_visible()
    assert (folder / "pinfold-demo" / "dropped.txt").read_text() == "let go"
    page.get_by_role("button", name=re.compile("summary.md, added by cell 2")).first.click()
    expect(page.get_by_label("Difference", exact=True)).to_contain_text("+ - Online: 27,386")
    page.keyboard.press("Escape")

    # An approval shows exactly what it is about, and stays until it is answered.
    page.get_by_label("Mode", exact=True).select_option("ask")
    expect(page.get_by_label("Mode", exact=True)).to_have_value("ask")
    say(page, "Leave a note")
    approval = page.get_by_role("region", name="Approval needed")
    expect(approval).to_contain_text("AGENTS.md")
    expect(approval).to_contain_text("be kind")
    approval.get_by_role("button", name="Allow once").click()
    question = page.get_by_role("region", name="A question for you")
    expect(question).to_contain_text("For which year?")
    question.get_by_role("button", name="2025").click()
    expect(conversation.get_by_text("The note is written.")).to_be_visible()
    assert (folder / "pinfold-demo" / "AGENTS.md").exists()

    # Back to the first cell from the timeline, and forth again.
    page.get_by_role("tab", name="Timeline").click()
    timeline = page.get_by_role("list", name="Cells, the latest first")
    timeline.get_by_role("button", name=re.compile("^1 ")).click()
    then = page.get_by_role("region", name="After cell 1")
    expect(then).to_contain_text("sales DataFrame 204 x 6")
    then.get_by_role("button", name="Undo to here").click()
    expect(page.get_by_text("Variables and files are as after cell 1.")).to_be_visible()
    assert not (folder / "pinfold-demo" / "summary.md").exists()
    page.get_by_role("button", name="Redo").click()
    expect(page.get_by_text(re.compile("^Redid cell"))).to_be_visible()
    assert (folder / "pinfold-demo" / "summary.md").exists()

    # A branch goes its own way; both can be compared.
    page.get_by_role("button", name="Session actions").click()
    page.get_by_role("menuitem", name="Branch from now").click()
    expect(conversation.get_by_text("everything above was copied from it")).to_be_visible()
    assert page.url != first
    say(page, "Go on")
    expect(conversation.get_by_text("The branch went its own way.")).to_be_visible()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("How much did each region sell")).first.click()
    comparison = page.get_by_role("region", name="Comparison")
    expect(comparison).to_contain_text(re.compile(r"Both share the first \d cells"))
    expect(comparison.get_by_role("row", name=re.compile("best"))).to_contain_text("not defined")

    # The export is a file with what was said.
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=re.compile("Markdown")).click()
    assert "Online" in Path(download.value.path()).read_text(encoding="utf-8")

    # Thoughts are seen while they come, and what runs can be stopped.
    page.get_by_role("button", name="Close the comparison").click()
    say(page, "Think")
    expect(conversation.locator(".thinking")).to_have_text("ThinkingFirst I look at the regions.")
    page.get_by_role("button", name="Stop").click()
    expect(conversation.get_by_text("Stopped.")).to_be_visible()
    assert outside == []


def test_nothing_is_lost_by_a_reload_in_a_turn_nor_by_a_server_that_is_killed(
    page: Page, serve: Callable[..., Served], folder: Path
) -> None:
    served = serve("waits")
    port = served.url.rpartition(":")[2]
    page.goto(f"{served.url}/#code={served.code}")
    say(page, "Wait for me")
    conversation = page.get_by_label("Conversation")
    printed = conversation.locator(".output")
    expect(printed.get_by_text("the first line")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    (folder / "workspace" / "go.txt").touch()
    expect(conversation.get_by_text("It is done.")).to_be_visible()
    expect(printed).to_have_text("the first line\nthe last line")
    (folder / "workspace" / "go.txt").unlink()

    say(page, "Once more")
    expect(conversation.get_by_text("I wait.")).to_have_count(2)
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    before = conversation.locator("article").all_inner_texts()
    served.process.kill()
    served.process.wait()
    expect(page.get_by_text("No connection")).to_be_visible()
    page.get_by_label("Message to the agent").fill("a draft that stays")

    serve("waits", "--port", port)
    expect(page.get_by_text("The last turn was cut off.")).to_be_visible()
    assert conversation.locator("article").all_inner_texts() == before
    expect(page.get_by_label("Message to the agent")).to_have_value("a draft that stays")
    (folder / "workspace" / "go.txt").touch()
    page.get_by_role("button", name="Continue").click()
    expect(conversation.get_by_text("It is done.")).to_have_count(2)
