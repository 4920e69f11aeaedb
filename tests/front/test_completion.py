"""Completion in real shells: what each offers after the beginning of a command line."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from click.shell_completion import BashComplete

from pinfold.app import SessionStore
from pinfold.app.paths import private_dir
from pinfold.events import SessionChanged, SessionId
from pinfold.front.cli.main import cli
from pinfold.log import Log

pytestmark = pytest.mark.integration
_LIMIT_S = 30.0


@pytest.fixture
def in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pinfold` is this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "pinfold").write_text(f'#!/bin/sh\nexec {sys.executable} -m pinfold "$@"\n', encoding="utf-8")
    (folder / "pinfold").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))


def shell(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=_LIMIT_S)
    assert done.stderr == ""
    return done.stdout


def in_bash(*lines: str) -> list[list[str]]:
    """What bash has in COMPREPLY for each."""
    asks = ['eval "$(pinfold completion bash)"']
    for line in lines:
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        asks += [f"COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1} COMPREPLY=()"]
        asks += ["_pinfold_completion pinfold", 'echo "${COMPREPLY[@]}"']
    *found, registered = shell("bash", "--norc", "-c", "\n".join([*asks, "complete -p pinfold"])).splitlines()
    assert registered == "complete -o nosort -F _pinfold_completion pinfold"
    return [line.split() for line in found]


def in_fish(*lines: str) -> list[list[str]]:
    """What `complete -C` prints for each, its words behind a tab."""
    asks = ["pinfold completion fish | source", *(f"complete -C '{line}'; echo ---" for line in lines)]
    parts = shell("fish", "--no-config", "-c", "\n".join(asks)).split("---\n")[:-1]
    return [part.splitlines() for part in parts]


class Zsh:
    """An interactive one."""

    def __init__(self, folder: Path) -> None:
        (folder / ".zshrc").write_text(
            "autoload -U compinit && compinit -u -D\n"
            'eval "$(pinfold completion zsh)"\n'
            "LISTMAX=0 PS1='ready> '\nunsetopt zle_bracketed_paste prompt_sp\n",
            encoding="utf-8",
        )
        pid, self._terminal = pty.fork()
        if pid == 0:
            os.environ.update(ZDOTDIR=str(folder), TERM="dumb", COLUMNS="200")
            os.execvp("zsh", ["zsh", "-i"])
        self.pid = pid
        self.until("ready> ")

    def until(self, wanted: str) -> str:
        """What it writes, up to what is wanted."""
        seen, give_up_at = "", time.monotonic() + _LIMIT_S
        while not re.search(wanted, seen):
            left = give_up_at - time.monotonic()
            assert left > 0, seen
            if select.select([self._terminal], [], [], left)[0]:
                seen += os.read(self._terminal, 4096).decode("utf-8", "replace")
        return seen

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


@pytest.fixture
def session() -> SessionId:
    """One that is called my-work, and one whose title no shell could take."""

    async def make() -> None:
        for id_, title in (("s_0123456789ab", "my-work"), ("s_ba9876543210", "my $(touch x) *")):
            folder = private_dir(SessionStore().folder_of(SessionId(id_)))
            log = Log(folder, SessionId(id_))
            await log.append(SessionChanged(title=title))
            log.close()

    anyio.run(make)
    return SessionId("s_0123456789ab")


def offered(line: str) -> list[str]:
    """What the shells are given."""
    *args, incomplete = line.split(" ")[1:]
    completer = BashComplete(cli, {}, "pinfold", "_PINFOLD_COMPLETE")
    return [item.value for item in completer.get_completions(args, incomplete)]


@pytest.mark.usefixtures("session")
def test_commands_options_modes_formats_sessions_and_models_are_offered() -> None:
    assert offered("pinfold se") == ["sessions", "serve", "secret"]
    assert offered("pinfold run --max-s") == ["--max-steps", "--max-seconds"]
    assert offered("pinfold run --mode a") == ["ask", "auto"]
    assert "bundle" in offered("pinfold export last --to b")
    assert offered("pinfold run --model built") == ["builtin", "builtin-small"]
    assert offered("pinfold resume my") == ["my-work"]
    assert offered("pinfold undo s_0") == ["s_0123456789ab"]
    assert offered("pinfold sessions rm s_0123456789ab la") == ["last"]
    assert offered("pinfold checkpoint on -s s_b") == ["s_ba9876543210"]
    assert offered("pinfold completion ") == ["bash", "zsh", "fish"]
    assert offered("pinfold nothing x") == []


@pytest.mark.usefixtures("in_path", "session")
def test_bash_completes() -> None:
    if not shutil.which("bash"):
        pytest.skip("no bash")
    names, sessions, nothing = in_bash("pinfold se", "pinfold resume my", "pinfold nothing x")
    assert (names, sessions, nothing) == (["sessions", "serve", "secret"], ["my-work"], [])


@pytest.mark.usefixtures("in_path", "session")
def test_fish_completes_with_words() -> None:
    if not shutil.which("fish"):
        pytest.skip("no fish")
    names, sessions = in_fish("pinfold ses", "pinfold sessions show s_0")
    assert names == ["sessions\tList; show; rename and remove sessions."]
    assert sessions == ["s_0123456789ab\tmy-work"]


@pytest.mark.usefixtures("in_path")
def test_zsh_completes_at_the_prompt(tmp_path: Path) -> None:
    if not shutil.which("zsh"):
        pytest.skip("no zsh")
    zsh = Zsh(tmp_path)
    try:
        zsh.type("pinfold sess\t")
        zsh.until("pinfold sessions ")
        zsh.type("\x15pinfold run --mode \t")
        shown = zsh.until("full")
        assert all(mode in shown for mode in ("read-only", "ask", "auto"))
    finally:
        zsh.end()


def test_names_of_commands_are_completed_without_loading_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "pinfold ")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("_PINFOLD_COMPLETE", "bash_complete")
    code = (
        "import sys\nfrom pinfold.front.cli.main import run_command_line\n"
        "try: run_command_line([])\n"
        "finally: sys.stderr.write(' '.join(name for name in sys.modules if name.startswith('pinfold')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    assert "plain,run\n" in done.stdout
    loaded = set(done.stderr.split())
    assert "pinfold.front.cli.main" in loaded
    assert loaded <= {
        "pinfold",
        "pinfold._version",
        "pinfold.front",
        "pinfold.front.cli",
        "pinfold.front.cli.main",
        "pinfold.front.cli.commands",
        "pinfold.front.cli.commands.completion",
    }
