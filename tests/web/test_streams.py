"""Many tabs and long sessions: one stream for all tabs of a browser, and only a part of a long session in the page."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Request, Route, expect
from tests.front.server.served import Served

pytestmark = [
    pytest.mark.integration,
    pytest.mark.browser,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
expect.set_options(timeout=60_000)
TABS = 8
CELLS = 1_000
FINISHED: dict[str, Any] = {
    "kind": "ActionFinished",
    "outcome": "ok",
    "value": None,
    "error": None,
    "variables": None,
    "rolled_back": False,
    "blobs": [],
    "displays": [],
    "files": [],
    "more_files": 0,
    "notices": [],
    "sent": [],
    "usage": None,
    "cost": None,
}


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    return serve("keyboard")


@pytest.fixture
def session(served: Served, context: BrowserContext) -> str:
    context.add_init_script(f"sessionStorage.setItem('pinfold-token', '{served.token}')")
    with served.client() as client:
        return client.post("/api/sessions", json={}).json()["id"]


def test_all_tabs_of_a_browser_share_one_stream(context: BrowserContext, served: Served, session: str) -> None:
    streams: list[Request] = []

    def count(request: Request) -> None:
        if request.headers.get("accept") == "text/event-stream":
            streams.append(request)

    context.on("request", count)
    tabs = [context.new_page() for _ in range(TABS)]
    for tab in tabs:
        tab.goto(f"{served.url}/#/{session}")
        expect(tab.get_by_label("Message to the agent")).to_be_visible()
    tabs[-1].get_by_label("Message to the agent").fill("What is x?")
    tabs[-1].keyboard.press("Enter")
    for tab in tabs:
        expect(tab.get_by_label("Conversation").get_by_text("x is 1.")).to_be_visible()
    assert len(streams) == 1
    # The next tab goes on when the one that read the stream is closed.
    tabs[0].close()
    tabs[1].get_by_label("Message to the agent").fill("Stop there")
    tabs[1].keyboard.press("Enter")
    for tab in tabs[1:]:
        expect(tab.get_by_label("Conversation").get_by_text("Stop there")).to_be_visible()
    assert len(streams) == 2


def test_a_thousand_cells_are_not_all_in_the_page_and_each_can_be_reached(
    page: Page, served: Served, session: str
) -> None:
    page.route(f"**/api/sessions/{session}/events*", long_session)
    page.goto(f"{served.url}/#/{session}")
    conversation = page.get_by_label("Conversation")
    expect(conversation.get_by_label(f"Cell {CELLS}", exact=True)).to_be_visible()
    assert conversation.locator(".step").count() <= 100
    page.get_by_role("list", name="Cells, the latest first").get_by_role(
        "button", name="3 value_3 = 3", exact=False
    ).first.click()
    expect(conversation.get_by_label("Cell 3", exact=True)).to_be_in_viewport()
    total = {"to": "api.example.com:443", "times": 3, "bytes_out": 12_000, "bytes_back": 400}
    page.route(f"**/api/sessions/{session}/sent", lambda route: route.fulfill(json={"sent": [total]}))
    page.get_by_role("tab", name="Sent").click()
    expect(page.get_by_role("row", name="api.example.com:443 3 12 kB 400 B")).to_be_visible()
    page.get_by_label("Message to the agent").fill("still here")
    expect(page.get_by_label("Message to the agent")).to_have_value("still here")


def long_session(route: Route) -> None:
    """Answers in the server's place; the session's own events would take minutes to make."""
    if "json" not in (route.request.headers.get("accept") or ""):
        route.abort()
        return
    events: list[dict[str, Any]] = [
        {"kind": "SessionOpened", "workspace": "/w", "model": "m", "mode": "auto", "lost": []},
    ]
    lines = "".join(f"line {number} of the output\n" for number in range(400))
    for number in range(1, CELLS + 1):
        id_ = f"a_{number}"
        action = {"type": "cell", "code": f"value_{number} = {number}\nprint(value_{number})"}
        events += [
            {"kind": "ActionProposed", "id": id_, "action": action, "by": "user", "turn": None, "parent": None},
            {"kind": "ActionStarted", "id": id_, "cell": number, "instead_of": None},
            {**FINISHED, "id": id_, "observation": lines, "duration_s": 0.01},
        ]
    body = [{"seq": seq, "at": "2026-01-01T00:00:00Z", **event} for seq, event in enumerate(events, 1)]
    route.fulfill(status=200, content_type="application/json", body=json.dumps({"events": body}))
