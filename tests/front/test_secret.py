"""`pinfold secret` and `pinfold trust` as a user has them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import command

pytestmark = pytest.mark.safety
LOCAL = ("--sandbox", "unsafe-local")
Pinfold = Callable[..., Any]
VALUE = "wading-bird-0123456789"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_secret_is_read_from_a_pipe_listed_without_its_value_and_forgotten(pinfold: Pinfold, tmp_path: Path) -> None:
    done = pinfold(
        "secret", "set", "BIRDS", "--host", "api.example.org", "--host", "*.birds.example", given=VALUE + "\n"
    )
    store = tmp_path / "xdg" / "config" / "pinfold" / "secrets.json"
    assert (done.code, done.out) == (0, "")
    assert done.err == f"BIRDS is stored in {store}, for api.example.org, *.birds.example\n"
    listed = pinfold("secret", "list")
    assert listed.out.split() == ["BIRDS", "file", "api.example.org,", "*.birds.example"]
    assert json.loads(pinfold("secret", "list", "--json").out) == {
        "name": "BIRDS",
        "hosts": ["api.example.org", "*.birds.example"],
        "where": "file",
        "header": "",
    }
    assert VALUE.encode() in store.read_bytes()
    assert pinfold("secret", "rm", "BIRDS").code == 0
    assert VALUE.encode() not in everything_below(tmp_path / "xdg")
    assert pinfold("secret", "list").out == ""


def test_on_a_terminal_the_value_is_asked_for_and_not_shown(tmp_path: Path, workspace: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("secret", "set", "BIRDS", "--host", "x.org"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=workspace,
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # noqa: PLW1509 - makes it the controlling one
    )
    os.close(theirs)
    shown = b""
    asked = False
    until = time.monotonic() + 100
    while time.monotonic() < until:
        if not select.select([ours], [], [], 0.2)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
        if not asked and b"BIRDS: " in shown:
            asked = True
            os.write(ours, VALUE.encode() + b"\n")
    assert process.wait(timeout=200) == 0, shown
    os.close(ours)
    assert asked
    assert VALUE.encode() not in shown
    assert b"is stored in" in shown
    assert VALUE.encode() in everything_below(tmp_path / "xdg" / "config")


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        (("set", "BIRDS", "--host", "http://x.org"), VALUE, "'http://x.org' is not a host name"),
        (("set", "\x1b[31m"), VALUE, "'\\x1b[31m' cannot be a secret's name"),
        (("set", "BIRDS"), "", "too short to be a secret"),
        (("set", "BIRDS"), b"\xff\xfe123456", "is not UTF-8 text"),
        (("set", "BIRDS"), b"x" * 70_000, "longer than 64 kB"),
        (("rm", "NOSUCH"), "", "there is no secret 'NOSUCH'"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_kept(
    pinfold: Pinfold, tmp_path: Path, arguments: tuple[str, ...], given: str | bytes, words: str
) -> None:
    done = pinfold("secret", *arguments, given=given)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
    assert words in done.err
    assert not list(tmp_path.rglob("secrets.json"))


def test_a_value_cannot_be_given_as_an_argument(pinfold: Pinfold) -> None:
    done = pinfold("secret", "set", "BIRDS", VALUE)
    assert done.code == 2
    assert pinfold("secret", "list").out == ""


@pytest.mark.parametrize("sandbox", ["unsafe-local", "auto"])
def test_a_secret_never_enters_a_session_or_what_is_kept_of_it(
    pinfold: Pinfold, tmp_path: Path, script: Any, cell: Any, sandbox: str
) -> None:
    pinfold("secret", "set", "BIRDS", "--host", "x.org", given=VALUE)
    look = (
        "import os, pathlib\n"
        "print([name for name, value in os.environ.items() if 'wading' in value], 'looked')\n"
        "for root in ('/proc/self/environ', '/proc/1/environ', '/proc/self/cmdline'):\n"
        "    try: print('wading' in open(root).read())\n"
        "    except OSError as error: print(False)\n"
    )
    model = script(cell(look), {"expect": "[] looked", "text": "done"})
    done = pinfold("--log-level", "debug", "run", "--sandbox", sandbox, "--model", model, "look")
    assert (done.code, done.out) == (0, "done\n"), done
    shelf = everything_below(tmp_path / "xdg" / "data") + everything_below(tmp_path / "xdg" / "state")
    assert b"looked" in shelf
    assert VALUE.encode() not in shelf + done.err.encode()


# Trust


def test_what_is_not_trusted_is_ignored_with_one_line_until_it_is(
    pinfold: Pinfold, workspace: Path, script: Any
) -> None:
    (workspace / "pinfold.toml").write_text("[run]\nmax_steps = 1\n")
    (workspace / "AGENTS.md").write_text("Use tabs.\n")
    notice = (
        f"pinfold: ignored in {workspace}: AGENTS.md, pinfold.toml (it is not trusted); "
        f"see and allow: pinfold trust {workspace}\n"
    )
    run = ("run", *LOCAL, "--model", script({"text": "hello"}), "hi")
    first = pinfold(*run)
    assert (first.code, first.out) == (0, "hello\n")
    assert first.err.count(notice) == 1
    assert pinfold("config", "show").err == notice
    shown = pinfold("trust", "--show")
    assert (shown.code, shown.err) == (1, "")
    assert shown.out.splitlines() == [
        "  AGENTS.md        tells the model, in 1 lines: Use tabs.",
        "  pinfold.toml     sets run.max_steps = 1",
        f"{workspace} is not trusted",
    ]
    assert pinfold("trust").code == 2  # nobody can be asked in a pipe
    assert pinfold("trust", "--yes").err == f"{workspace} is trusted until one of these changes\n"
    assert pinfold("trust", "--show").code == 0
    assert "ignored" not in pinfold(*run).err
    assert "run.max_steps = 1\n" in pinfold("config", "show").out
    (workspace / "AGENTS.md").write_text("Use spaces.\n")
    assert "changed since it was trusted: AGENTS.md" in pinfold(*run).err
    assert "* AGENTS.md" in pinfold("trust", "--show").out
    (workspace / "AGENTS.md").write_text("Use tabs.\n")
    assert pinfold("trust", "--forget").err == f"{workspace} is no longer trusted\n".replace(
        str(workspace), str(workspace)
    )
    assert pinfold(*run).err.count(notice) == 1


def test_a_folder_without_anything_to_obey_is_no_question(pinfold: Pinfold, script: Any) -> None:
    assert "ignored" not in pinfold("run", *LOCAL, "--model", script({"text": "x"}), "hi").err
    assert pinfold("trust", "--show").code == 0
    done = pinfold("trust", "--yes")
    assert (done.code, "nothing to trust" in done.err) == (2, True)


def test_keys_of_a_trusted_file_of_variables_reach_no_program(pinfold: Pinfold, workspace: Path) -> None:
    key = "gsk-of-the-project-0123456789"
    (workspace / ".env").write_text(f"GROQ_API_KEY={key}\nLD_PRELOAD=/evil.so\nPINFOLD_RUN_MODE=full\n")
    assert pinfold("trust", "--yes").code == 0
    program = "import os, subprocess\nprint([n for n in os.environ if 'GROQ' in n or 'PRELOAD' in n or 'PINFOLD_RUN' in n])\nsubprocess.run(['env'])"
    done = pinfold("exec", *LOCAL, "-c", program)
    assert done.out.startswith("[]\n")
    assert "GROQ" not in done.out
    assert key not in done.out + done.err
    assert 'run.mode = "auto"' in pinfold("config", "show").out
    shown = pinfold("trust", "--show").out
    assert "gives GROQ_API_KEY; ignored: LD_PRELOAD, PINFOLD_RUN_MODE" in shown
    assert key not in shown
