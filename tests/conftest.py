"""Shared by every test: one async backend, folders of its own, and the command line as a user has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from tests.fork_server import run_forked
from tests.wheels import Index

from pinfold.sandbox.environment import default_python

# Looked up now: a test sees folders of its own only.
DATA_PYTHON = os.environ.get("PINFOLD_TEST_DATA_PYTHON") or default_python()

# A job in the background ignores Ctrl-C, one of `nohup` the end of its terminal, and so would every program that a
# test starts in order to send it such a signal. A program does not inherit a handler: it gets the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)

LAWS = int(os.environ.get("PINFOLD_TEST_LAWS", "0"))
"""Laws are tried on examples drawn at random, and on this many times as many as they name."""
# Else on the same examples every time: a change passes or fails by what it does, not by what is drawn that day,
# nor by how busy the machine is. Of those a quarter is enough, and a half where safety is tried.
FEWEST = 25
settings.register_profile(
    "ours",
    derandomize=not LAWS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("ours")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests: dict[Any, bool] = {
        getattr(item, "function", None): item.get_closest_marker("safety") is not None for item in items
    }
    for test in filter(is_hypothesis_test, tests):
        told = test._hypothesis_internal_use_settings
        count = told.max_examples
        fewer = max(count // (2 if tests[test] else 4), min(FEWEST, count))
        test._hypothesis_internal_use_settings = settings(told, max_examples=count * LAWS or fewer)


@pytest.fixture
def data_python() -> Path:
    """The Python of the data environment, as `./check` builds it."""
    if not DATA_PYTHON:
        pytest.skip("the data environment is not built: `pinfold env build`")
    return Path(DATA_PYTHON)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person running the tests is read or written."""
    for variable in [name for name in os.environ if name.startswith("PINFOLD_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PINFOLD_SANDBOX_BUILD", "off")  # no test fetches a gigabyte by the way
    monkeypatch.setenv("PINFOLD_SANDBOX_WARM", "off")  # no test leaves a helper behind
    for name in ("config", "data", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / "xdg" / name))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "pinfold", *args]


@pytest.fixture
def pinfold(workspace: Path, request: pytest.FixtureRequest) -> Callable[..., Ran]:
    """Runs the real command in the workspace, loaded before unless the test is one of those an installation must pass."""
    from_nothing = any(request.node.get_closest_marker(name) for name in ("smoke", "installed"))

    def run(*args: str, given: str | bytes = b"", cwd: Path = workspace, timeout_s: float = 200) -> Ran:
        data = given.encode() if isinstance(given, str) else given
        done = None if from_nothing else run_forked(("-m", "pinfold", *args), data, cwd, timeout_s)
        done = done or subprocess.run(
            command(*args), input=data, capture_output=True, cwd=cwd, timeout=timeout_s, check=False
        )
        return Ran(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    return run


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Index]:
    """A package index of the test's own, and the only one that is asked."""
    for variable in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(variable)
    index = Index()
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield index
    index.close()


@pytest.fixture
def start(workspace: Path) -> Generator[Callable[..., subprocess.Popen[str]]]:
    """Starts the real command and leaves it running; ended with the test at the latest."""
    started: list[subprocess.Popen[str]] = []

    def begin(*args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(*args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=workspace,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=200)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Writes a scripted model and returns its name."""

    def write(*replies: dict[str, Any], name: str = "script.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
        return f"scripted:{path}"

    return write


@pytest.fixture
def cell() -> Callable[..., dict[str, Any]]:
    """A reply that runs code."""

    def reply(code: str, **more: Any) -> dict[str, Any]:
        return {"calls": [{"tool": "python", "args": {"code": code}}], **more}

    return reply
