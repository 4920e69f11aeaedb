"""The real command line on a real terminal, and all that came out of it."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Folders of its own, and whether the build is the weakened one."""

    folder: Path
    weak: bool = False

    @property
    def workspace(self) -> Path:
        path = self.folder / "workspace"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if name in os.environ}
        own = {f"XDG_{name.upper()}_HOME": str(self.folder / name) for name in ("config", "data", "state", "cache")}
        paths = [str(_ROOT / "src"), str(_ROOT)]
        own |= {"PYTHONPATH": os.pathsep.join(paths), "TERM": "xterm-256color", "PINFOLD_SANDBOX_WARM": "off"}
        return {**kept, **own, **more}


def on_a_terminal(scene: Scene, commands: Sequence[Sequence[str]], **environment: str) -> str:
    """What a terminal gets when these commands are run one after the other."""
    listed = scene.folder / "commands.json"
    listed.write_text(json.dumps(commands), encoding="utf-8")
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "bench.sink_suite.driver", *(["weak"] if scene.weak else [])]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=scene.workspace,
        # A terminal that draws no line again: what steers it is not ours then.
        env=scene.environment(COMMANDS=str(listed), TERM="dumb", **environment),
    )
    os.close(theirs)
    try:
        return _all_of(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _all_of(fd: int, process: subprocess.Popen[bytes]) -> str:
    data = bytearray()
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        if not select.select([fd], [], [], 1.0)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            piece = os.read(fd, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        data += piece
    # The terminal's own: it writes a line end as two.
    return data.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")


def piped(scene: Scene, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The same into pipes, for what is data."""
    return subprocess.run(
        [sys.executable, "-m", "pinfold", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=scene.workspace,
        env=scene.environment(**environment),
        timeout=_PATIENCE_S,
        check=False,
    )
