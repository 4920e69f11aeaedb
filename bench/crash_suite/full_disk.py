"""A disk of 16 MiB that is full at some point: in a mount namespace of its own, so that no other disk is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bench.crash_suite.launch import Forkserver, forkserver
from bench.crash_suite.oracle import (
    ACKNOWLEDGED,
    CHAINED,
    NUMBERED,
    ONCE,
    ONE_END,
    SOUND,
    TRUE,
    UNKNOWN,
    WENT_ON,
    Tally,
    judge_cut,
    judge_whole,
    read_store,
)
from bench.crash_suite.places import PROMPT, WORK, Place, new_place
from bench.crash_suite.writes import CLEAR, judge_refusal

LAWS = (CLEAR, ACKNOWLEDGED, NUMBERED, ONCE, TRUE, UNKNOWN, ONE_END, SOUND, CHAINED, WENT_ON)
ROOM_KIB = 400
"""More than the session needs: the last point must not hit anything."""
_ROOT = Path(__file__).parents[2]
_SIZE = "16m"
_LONGEST_S = 300.0
_FILL = """\
import errno, os
ballast = os.open({path!r}, os.O_WRONLY | os.O_CREAT, 0o600)
try:
    while True:
        os.write(ballast, bytes(4096))
except OSError as error:
    assert error.errno == errno.ENOSPC
"""


class NotPermitted(Exception):
    """This machine does not let us mount a disk of our own; says why."""


def fill_at_every(step_kib: int) -> Tally:
    """One session for each amount of room that is left, and one whose own cell fills the disk."""
    with tempfile.TemporaryDirectory(prefix="crash-full-") as temporary:
        namespace = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
        disk = Path(temporary) / "disk"
        disk.mkdir()
        mount = f'mount -t tmpfs -o size={_SIZE} tmpfs "$0" && exec "$@"'
        inside = [sys.executable, "-m", "bench.crash_suite.full_disk", str(step_kib), str(disk)]
        try:
            ended = subprocess.run(
                [*namespace, "sh", "-c", mount, str(disk), *inside],
                cwd=_ROOT,
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
                check=False,
            )
        except OSError as error:
            raise NotPermitted(f"unshare cannot be run: {error}") from error
    if ended.returncode != 0 and ("unshare" in ended.stderr or "mount" in ended.stderr):
        raise NotPermitted(ended.stderr.strip())
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr)
    report = json.loads(ended.stdout)
    return Tally(
        examined=Counter(report["examined"]),
        broken=Counter(report["broken"]),
        seen=Counter(report["seen"]),
        examples=report["examples"],
    )


def _inside(step_kib: int, disk: Path) -> Tally:
    tally = Tally()
    with forkserver() as server, tempfile.TemporaryDirectory(prefix="crash-full-") as temporary:
        for room_kib in range(0, ROOM_KIB + 1, step_kib):
            place = new_place(Path(temporary) / str(room_kib), WORK, data=disk / str(room_kib))
            _fill(disk / "ballast", room_kib)
            _session(tally, server, place, disk / "ballast", f"{room_kib} KiB left")
            shutil.rmtree(disk / str(room_kib))
        code = _FILL.format(path=str(disk / "ballast"))
        filling: list[dict[str, Any]] = [{"calls": [{"tool": "python", "args": {"code": code}}]}, *WORK]
        place = new_place(Path(temporary) / "filling", filling, data=disk / "filling")
        _session(tally, server, place, disk / "ballast", "a cell fills it")
    return tally


def _fill(ballast: Path, room_kib: int) -> None:
    state = os.statvfs(ballast.parent)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_bsize - (room_kib << 10))


def _session(tally: Tally, server: Forkserver, place: Place, ballast: Path, where: str) -> None:
    struck = server.start(place, place.run()).until()
    judge_refusal(tally, struck, place, where)
    reading = read_store(place.session_folder())
    tally.seen[f"exit {struck.code}"] += 1
    tally.seen[f"full: {reading.phase()}"] += struck.code == 75
    judge_cut(tally, reading, struck.acknowledged)
    cut = reading.running()
    ballast.unlink()
    acknowledged = struck.acknowledged
    folder = place.session_folder()
    if "TurnEnded" not in reading.kinds():
        prompt = None if "UserSpoke" in reading.kinds() else PROMPT
        again = server.start(place, place.resume(folder.name, prompt) if folder else place.run()).until()
        acknowledged += again.acknowledged
    reading = read_store(place.session_folder())
    judge_cut(tally, reading, acknowledged)
    judge_whole(tally, place, reading, cut)


if __name__ == "__main__":
    found = _inside(int(sys.argv[1]), Path(sys.argv[2]))
    print(
        json.dumps({"examined": found.examined, "broken": found.broken, "seen": found.seen, "examples": found.examples})
    )
