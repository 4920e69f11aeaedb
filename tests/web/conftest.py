"""A real `pinfold serve` and a real Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.conftest import DATA_PYTHON
from tests.front.server.served import Served, begin, end
from tests.web.scripts import write_scripts

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_MS = 60_000


def find_chromium() -> str:
    found = os.environ.get("PINFOLD_TEST_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if not found:
        pytest.skip("no Chromium: `apt-get install chromium`, or name one in PINFOLD_TEST_CHROMIUM")
    return found


@pytest.fixture(scope="module")  # no longer: while it is open no test with an event loop of its own can run here
def browser() -> Generator[Browser]:
    found = find_chromium()
    with sync_playwright() as playwright:
        # Its sandbox does not work for root, nor where user namespaces are closed; it opens our own page only.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def serve(folder: Path) -> Generator[Callable[..., Served]]:
    """Starts `pinfold serve` with folders of the module's own; it can be called again after the server was killed."""
    (folder / "workspace").mkdir()
    write_scripts(folder)
    started: list[Served] = []
    own = {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("config", "data", "state", "cache")}
    own |= {"HOME": str(folder), "PINFOLD_SANDBOX_BUILD": "off", "PINFOLD_SANDBOX_WARM": "off"}
    if DATA_PYTHON:
        own["PINFOLD_SANDBOX_PYTHON"] = str(DATA_PYTHON)

    def start(script: str, *args: str) -> Served:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in own.items():
                environment.setenv(name, value)
            served = begin(folder / "workspace", "--model", f"scripted:{folder / script}.jsonl", *args)
        started.append(served)
        return served

    yield start
    for served in started:
        end(served)


@pytest.fixture
def context(browser: Browser) -> Generator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    context.set_default_timeout(WAIT_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Generator[Page]:
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    assert problems == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which npm installs with the page's other packages."""
    if not AXE.exists():
        subprocess.run([sys.executable, ROOT / "scripts" / "build_page.py", "--check"], check=True, timeout=600)
    return AXE.read_text(encoding="utf-8")
