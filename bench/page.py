"""How the page of `pinfold serve` feels with a long session, in a real Chromium. Run it on a quiet machine:

    PINFOLD_TEST_CHROMIUM=$(command -v chromium) ./.venv/bin/python bench/page.py [--cells 1000] [--keys 60]

First paint, size of the scripts, and how long a key press takes until it is on the screen (Event Timing, in steps of 8 ms): in a
session of many cells with 10 kB of output each, idle, and while a cell prints 200 lines a second. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sandbox_suite.figures import percentile
from bench.server_suite.stage import Report
from playwright.sync_api import Page, sync_playwright
from tests.front.server.served import Served, begin, end, follow, until

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "src" / "pinfold" / "front" / "server" / "assets"
MESSAGE = "Message to the agent"
PRINTS = "for at in range(400):\n    print(f'line {at} of the output')"
STREAMS = "import time\nfor at in range(4000):\n    print('line', at, flush=True)\n    time.sleep(0.005)"
OBSERVER = """
window.keyTimes = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (entry.name === "keydown") window.keyTimes.push(entry.duration);
}).observe({ type: "event", durationThreshold: 16 });
"""
UNSEEN_MS = 16.0
"""Faster key presses are not reported, and count as this."""


@contextmanager
def served_sessions(folder: Path) -> Generator[Served]:
    """A server with folders of its own and a model that streams a cell."""
    (folder / "workspace").mkdir()
    replies = [{"calls": [{"tool": "python", "args": {"code": STREAMS}}]}, {"text": "Done."}]
    (folder / "script.jsonl").write_text("".join(json.dumps(one) + "\n" for one in replies), encoding="utf-8")
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        os.environ[f"XDG_{name}_HOME"] = str(folder / name.lower())
    os.environ |= {"HOME": str(folder), "PINFOLD_SANDBOX_BUILD": "off", "PINFOLD_SANDBOX_WARM": "off"}
    served = begin(folder / "workspace", "--model", f"scripted:{folder / 'script.jsonl'}")
    try:
        yield served
    finally:
        end(served)


def make_session(served: Served, cells: int) -> str:
    with served.client() as client:
        session: str = client.post("/api/sessions", json={}).json()["id"]
        for at in range(cells):
            command = {"kind": "Execute", "code": f"value_{at} = {at}\n{PRINTS}"}
            accepted: dict[str, Any] = client.post(f"/api/sessions/{session}/commands", json=command).json()
            with follow(client, session, accepted["seq"]) as events:
                until(events, "ActionFinished")
    return session


def type_keys(page: Page, keys: int) -> list[float]:
    """Milliseconds from each key press to the frame that shows it."""
    page.get_by_label(MESSAGE).click()
    page.evaluate("window.keyTimes.length = 0")
    page.keyboard.type("abcdefghi " * (keys // 10), delay=60)
    page.wait_for_timeout(300)
    seen: list[float] = page.evaluate("window.keyTimes")
    page.get_by_label(MESSAGE).fill("")
    return seen + [UNSEEN_MS] * (keys - len(seen))


def measure(page: Page, url: str, session: str, cells: int, keys: int, report: Report) -> None:
    page.add_init_script(OBSERVER)
    page.goto(f"{url}/#/{session}")
    page.get_by_label("Conversation").get_by_label(f"Cell {cells}", exact=True).wait_for()
    paint: float = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    report.judge("first paint, with nothing cached", paint, 1000, " ms")
    scripts = sum(len(gzip.compress(file.read_bytes())) for file in ASSETS.glob("*.js"))
    report.judge("scripts, compressed", scripts / 1024, 120, " KB")
    for what in ("idle", "while a cell prints"):
        if what != "idle":
            page.get_by_label(MESSAGE).fill("go")
            page.keyboard.press("Enter")
            page.get_by_label("Conversation").get_by_text("line 100", exact=False).first.wait_for()
        times = type_keys(page, keys)
        report.tell(f"key press to screen, {cells:,} cells, {what}", f"p50 {percentile(times, 50):.0f} ms")
        report.judge(f"the same, p98 of {keys}", percentile(times, 98), 100, " ms")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", type=int, default=1000)
    arguments.add_argument("--keys", type=int, default=60)
    given = arguments.parse_args()
    chromium = os.environ.get("PINFOLD_TEST_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        raise SystemExit("no Chromium: `apt-get install chromium`, or name one in PINFOLD_TEST_CHROMIUM")
    report = Report()
    with tempfile.TemporaryDirectory() as made, served_sessions(Path(made)) as served, sync_playwright() as playwright:
        session = make_session(served, given.cells)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.add_init_script(f"sessionStorage.setItem('pinfold-token', '{served.token}')")
        measure(context.new_page(), served.url, session, given.cells, given.keys, report)
        browser.close()
    print(report.to_table())
    print(f"load of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors; missed: {report.missed}")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
