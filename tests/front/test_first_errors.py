"""What a user can do wrong in the first ten minutes: each ends in one line that says what to do, and no traceback."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Ran, command
from tests.model.servers import Says, Server
from tests.other_user import as_someone
from tests.wheels import Index

pytestmark = pytest.mark.integration
SCRIPT = "{script}"
NOTICES = (
    "resolving",
    "the data environment is not built",
    "continue with: ",
    "the model failed (",
    "Full isolation is refused",
)
"""Lines that may come besides: what goes on, and how."""
KEY = "sk-heron-0123456789abcdef"


@dataclass(frozen=True, kw_only=True)
class Case:
    args: tuple[str, ...]
    code: int
    words: tuple[str, ...]
    """What is wrong, and what to do."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Written first; by their paths in the test's folder."""
    env: dict[str, str | None] = field(default_factory=dict[str, str | None])
    before: str = ""
    """A shell command to run first, in a mount namespace and a user namespace of its own."""
    cwd: str = "workspace"
    other_user: bool = False


def said(status: int, message: str, code: str = "") -> Says:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Says(status=status, steps=(body,), kind="application/json")


RUN = ("run", "--model", SCRIPT, "hello")
CASES = {
    "a key that is refused": Case(
        args=("run", "--model", "openai:gpt-5", "hello"),
        env={"OPENAI_BASE_URL": "{refusing}/v1", "OPENAI_API_KEY": KEY},
        code=1,
        words=("401 Unauthorized", "check the key in OPENAI_API_KEY"),
    ),
    "no key": Case(
        args=("run", "--model", "gpt-5", "hello"),
        env={"OPENAI_API_KEY": None, "OPENAI_BASE_URL": None},
        code=2,
        words=("openai needs a key: set OPENAI_API_KEY",),
    ),
    "a server that is not there": Case(
        args=("run", "--model", "http://127.0.0.1:{closed}/v1#m", "hello"),
        code=75,
        words=("nothing answers at http://127.0.0.1:", "is the server running?"),
    ),
    "a host that nobody knows": Case(
        args=("run", "--model", "http://no-such-host.invalid/v1#m", "hello"),
        code=75,
        words=("Host name not found. Check your network and the address.",),
    ),
    "a model the server does not have": Case(
        args=("run", "--model", "openai:gpt-55", "hello"),
        env={"OPENAI_BASE_URL": "{unknowing}/v1", "OPENAI_API_KEY": KEY},
        code=1,
        words=("404 Not Found", "did you mean --model openai:gpt-5?"),
    ),
    "a provider mistyped": Case(
        args=("run", "--model", "opnai:gpt-5", "hello"), code=2, words=("did you mean openai:MODEL?",)
    ),
    "a model mistyped": Case(args=("run", "--model", "gtp-5", "hello"), code=2, words=("did you mean gpt-5?",)),
    "data that is not there": Case(
        args=("run", "--model", SCRIPT, "--data", "sails.csv", "hello"),
        files={"workspace/sales.csv": "1"},
        code=2,
        words=("sails.csv does not exist", "did you mean", "sales.csv?"),
    ),
    "a workspace that is not there": Case(
        args=("run", "--model", SCRIPT, "--workspace", "nowhere", "hello"),
        code=2,
        words=("the workspace nowhere does not exist", "make it or name another"),
    ),
    "a mount that is not there": Case(
        args=("run", "--model", SCRIPT, "--mount", "/no/such", "hello"),
        code=2,
        words=("/no/such cannot be mounted: it does not exist", "is the path right?"),
    ),
    "a workspace that is closed": Case(
        args=RUN,
        cwd="closed",
        other_user=True,
        code=2,
        words=("you may not read the workspace", "chmod u+rx"),
    ),
    "an option mistyped": Case(
        args=("run", "--modle", "x", "hello"), code=2, words=("--modle", "Did you mean", "--model")
    ),
    "a session that is not there": Case(
        args=("resume", "s_nope", "x"), code=2, words=("there is no session 's_nope'", "`pinfold sessions`")
    ),
    "a sandbox mistyped": Case(
        args=("run", "--model", SCRIPT, "--sandbox", "namespace", "x"),
        code=2,
        words=("there is no sandbox 'namespace'", "namespaces"),
    ),
    "a configuration that is no TOML": Case(
        args=RUN,
        files={"xdg/config/pinfold/config.toml": "[run\n"},
        code=2,
        words=("config.toml is not valid TOML", "line 1", "pinfold config edit"),
    ),
    "a key of the configuration mistyped": Case(
        args=RUN,
        files={"xdg/config/pinfold/config.toml": "[run]\nmax_step = 1\n"},
        code=2,
        words=("config.toml", "unknown key 'max_step' in [run]", "did you mean 'max_steps'?"),
    ),
    "a Python that is not there": Case(
        args=RUN,
        env={"PINFOLD_SANDBOX_PYTHON": "/no/python"},
        code=2,
        words=("sandbox.python: the Python /no/python does not exist", "name one that does"),
    ),
    "a Python that is none": Case(
        args=RUN,
        env={"PINFOLD_SANDBOX_PYTHON": "/bin/false"},
        code=2,
        words=("sandbox.python: /bin/false does not run as Python 3", "name another"),
    ),
    "no home": Case(
        args=RUN, env={"HOME": "", "XDG_DATA_HOME": None}, code=2, words=("HOME is ''", "set HOME or XDG_DATA_HOME")
    ),
    "a home of someone else's": Case(
        args=RUN,
        other_user=True,
        env={"XDG_DATA_HOME": "{root}/theirs"},
        code=2,
        words=("cannot be used: Permission denied", "set XDG_DATA_HOME to a folder that is"),
    ),
    "a home that is read-only": Case(
        args=RUN,
        before="mkdir -p {root}/xdg/data && mount -t tmpfs -o ro none {root}/xdg/data",
        code=2,
        words=("cannot be used: Read-only file system", "set XDG_DATA_HOME to a folder that is"),
    ),
    "a disk that is full at the start": Case(
        args=RUN,
        before="mkdir -p {root}/xdg/data && mount -t tmpfs -o size=64k none {root}/xdg/data && "
        "! head -c 200000 /dev/zero > {root}/xdg/data/fill 2>/dev/null",
        code=75,
        words=("disk is full", "free some space"),
    ),
    "a disk that is full during a turn": Case(
        args=("run", "-q", "--model", "scripted:{root}/long.jsonl", "hello"),
        files={"long.jsonl": "".join(json.dumps({"text": "a" * 50_000, "calls": [{"tool": "now", "args": {}}]}) + "\n" for _ in range(20))},
        before="mkdir -p {root}/xdg/data && mount -t tmpfs -o size=300k none {root}/xdg/data",
        code=75,
        words=("disk is full", "free some space"),
    ),
    "a disk that is full while an environment is built": Case(
        args=("env", "build"),
        before="mkdir -p {root}/xdg/data && mount -t tmpfs -o size=64k none {root}/xdg/data",
        code=2,
        words=("the disk is full: make room for", "try again"),
    ),
    "no user namespaces, and full isolation wanted": Case(
        args=("exec", "--sandbox", "namespaces", "-c", "print(1)"),
        before="echo 0 > /proc/sys/user/max_user_namespaces",
        code=2,
        words=("does this machine allow user namespaces", "`pinfold doctor` names the fix"),
    ),
    "a port that is taken": Case(
        args=("mcp-server", "--http", "127.0.0.1:{taken}"),
        code=2,
        words=("cannot listen on 127.0.0.1:", "Address already in use", "--http HOST:PORT"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def places() -> Generator[dict[str, str]]:
    """Servers that refuse, a port that is taken, one that is closed."""
    refusing = Server(said(401, "Incorrect API key provided", "invalid_api_key"))
    unknowing = Server()
    models = json.dumps({"data": [{"id": "gpt-4o"}, {"id": "gpt-5"}]}).encode()
    unknowing.route(
        {
            "/v1/chat/completions": [said(404, "The model `gpt-55` does not exist", "model_not_found")],
            "/v1/models": [Says(steps=(models,), kind="application/json")],
        }
    )
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield {
            "refusing": refusing.url,
            "unknowing": unknowing.url,
            "closed": str(port),
            "taken": str(taken.getsockname()[1]),
        }
    refusing.close()
    unknowing.close()


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_ends_in_one_line_that_says_what_to_do(
    name: str,
    tmp_path: Path,
    workspace: Path,
    script: Callable[..., str],
    places: dict[str, str],
    index: Index,
    pinfold: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES[name]
    if case.other_user and os.geteuid() != 0:
        pytest.skip("only root can be someone else")
    known = {"script": script({"text": "done"}), "root": str(tmp_path), **places}

    def filled(text: str) -> str:
        for word, value in known.items():
            text = text.replace(f"{{{word}}}", value)
        return text

    for path, content in case.files.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    for key in [key for key in os.environ if key.endswith("_API_KEY")]:
        monkeypatch.delenv(key)
    for key, value in case.env.items():
        monkeypatch.delenv(key, raising=False) if value is None else monkeypatch.setenv(key, filled(value))
    args = [*map(filled, case.args)]
    cwd = tmp_path / case.cwd
    if case.before:
        whole = f"{filled(case.before)}; exec {shlex.join(command(*args))}"
        done = _run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", whole], cwd)
        if not done.err.startswith("pinfold: "):
            pytest.skip("a namespace of one's own is not allowed here")
    elif case.other_user:
        _open_to_others(tmp_path, cwd)
        monkeypatch.setenv("HOME", str(tmp_path))
        done = _run(as_someone(1234, *command(*args), where=tmp_path), cwd)
    else:
        done = pinfold(*args, cwd=cwd, timeout_s=60)
    lines = done.err.splitlines()
    ours = [line for line in lines if not any(f"pinfold: {notice}" in line for notice in NOTICES)]
    assert done.code == case.code, done
    assert len(ours) == 1, done.err
    assert ours[0].startswith("pinfold: ")
    assert all(word in ours[0] for word in case.words), ours[0]
    assert "Traceback" not in done.err
    assert "please report" not in done.err
    assert KEY not in done.out + done.err


def _open_to_others(root: Path, cwd: Path) -> None:
    root.chmod(0o755)
    cwd.mkdir(exist_ok=True)
    if cwd.name == "closed":
        # Entered while it was open, as by a shell that stands in it.
        (root / "xdg").mkdir()
        (root / "xdg").chmod(0o777)
        cwd.chmod(0o711)


def _run(argv: list[str], cwd: Path) -> Ran:
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=200, check=False, stdin=subprocess.DEVNULL
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_group_without_a_command_shows_its_help_as_a_page(pinfold: Callable[..., Any]) -> None:
    done = pinfold("config")
    assert (done.code, done.out) == (2, "")
    assert [line for line in done.err.splitlines() if line.startswith("  edit ")]
    assert "pinfold: " not in done.err
