"""An exported page in a real browser: whatever the session held, nothing of it runs and nothing is loaded.

A canary server on loopback counts whoever comes; the same texts in a page that does not care must bring visitors.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pinfold.app.storage.exports import render_session
from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    BlobId,
    CallTool,
    DisplayRef,
    Entry,
    Event,
    ModelReplied,
    Noticed,
    RunCell,
    SessionChanged,
    SessionId,
    SessionOpened,
    TurnFailed,
    TurnId,
    UserSpoke,
)
from pinfold.log import blob_id

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(BROWSER is None, reason="there is no chromium here (Debian: apt-get install chromium)"),
]


class Canary:
    """Knows who came."""

    def __init__(self) -> None:
        canary = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                canary.visits.append(self.path)
                self.send_response(204)
                self.end_headers()

            do_POST = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.visits: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def canary() -> Generator[Canary]:
    canary = Canary()
    yield canary
    canary.close()


def attacks(url: str) -> list[str]:
    """Each comes to the canary under a name of its own, if it may."""
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="new Image().src=\'{url}/svg-onload\'"><script>fetch("{url}/svg-script")</script><image href="{url}/svg-image"/></svg>'
    return [
        f"<script>fetch('{url}/script')</script>",
        f"<img src={url}/img>",
        f"<img src=x onerror=\"fetch('{url}/onerror')\">",
        f"<style>@import '{url}/import'; body {{ background: url({url}/background) }}</style>",
        f"<link rel=stylesheet href={url}/stylesheet>",
        f"<link rel=prefetch href={url}/prefetch><link rel=icon href={url}/icon>",
        f"<iframe src={url}/frame></iframe><iframe srcdoc='<script>fetch(\"{url}/inner\")</script>'></iframe>",
        f"<object data={url}/object></object><embed src={url}/embed>",
        f"<video autoplay src={url}/video></video>",
        f"<details open ontoggle=\"fetch('{url}/toggle')\">",
        f"<table background={url}/table><tr><td style='background:url({url}/td)'>x</table>",
        f'"><script>fetch("{url}/attribute")</script>',
        f"</pre></code></title></style></textarea></iframe><script>fetch('{url}/closed')</script>",
        f"![x]({url}/markdown) [x](javascript:fetch('{url}/link')) <javascript:fetch('{url}/auto')>",
        f"<form id=f action={url}/form></form><input autofocus form=f onfocus=\"fetch('{url}/focus')\">",
        f"<base href={url}/><img src=based>",
        svg,
    ]


def hostile(url: str) -> tuple[list[Entry], dict[BlobId, bytes]]:
    """A session in which every text is an attack."""
    texts = attacks(url)
    everything = "\n".join(texts)
    blobs = {blob_id(text.encode()): text.encode() for text in (everything, *texts)}
    id_, tool, turn = ActionId("a_1"), ActionId("a_2"), TurnId("t_1")
    mimes = (
        "text/html",
        "text/markdown",
        "image/svg+xml",
        "text/plain",
        "application/json",
        f'image/png" {everything}',
    )
    displays = [DisplayRef(mime={mime: blob_id(text.encode())}) for mime in mimes for text in (everything, *texts)]
    events: list[Event] = [
        SessionOpened(
            version="1", workspace=everything, model=everything, mode="auto", sandbox="auto", lost=(everything,)
        ),
        SessionChanged(title=everything),
        UserSpoke(turn=turn, text=everything),
        *(ModelReplied(turn=turn, model=everything, text=text) for text in (everything, *texts)),
        ModelReplied(turn=turn, model="m", text="\n".join(f"```{text}\n{text}\n```" for text in texts)),
        ActionProposed(id=id_, action=RunCell(code=everything), turn=turn),
        ActionStarted(id=id_, effect="once", cell=1),
        ActionFinished(
            id=id_,
            outcome="error",
            observation=f"{everything}\n[stderr]\n{everything}\n{everything}",
            value=everything,
            error=everything,
            displays=tuple(displays),
        ),
        ActionProposed(id=tool, action=CallTool(tool=everything, args={everything: everything}), turn=turn),
        ActionStarted(id=tool, effect="once"),
        ActionFinished(id=tool, outcome="ok", observation=everything),
        Noticed(text=everything),
        TurnFailed(turn=turn, error=everything),
    ]
    entries = [
        Entry(seq=number, session=SessionId(everything), at=everything, event=event)
        for number, event in enumerate(events, 1)
    ]
    return entries, blobs


def open_in_browser(page: Path, profile: Path) -> str:
    """What the page is like once everything that wanted to run has had its time."""
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=3000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        timeout=200,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace")


def test_nothing_in_an_exported_page_runs_or_is_loaded(canary: Canary, tmp_path: Path) -> None:
    entries, blobs = hostile(canary.url)
    page = tmp_path / "page.html"
    page.write_bytes(render_session("html", entries, blobs.__getitem__).data)
    seen = open_in_browser(page, tmp_path / "profile")
    assert "<main>" in seen
    assert seen.count("<iframe sandbox") > 5
    assert canary.visits == []


def test_the_same_texts_in_a_careless_page_do_run_and_load(canary: Canary, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><body>" + "\n".join(attacks(canary.url)), encoding="utf-8")
    open_in_browser(page, tmp_path / "profile")
    came = {path.strip("/") for path in canary.visits}
    assert came >= {"script", "img", "onerror", "stylesheet", "frame", "inner", "svg-image", "closed"}
