"""Makes a folder with old and new logs, the same every time except that dates count back from today."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

DAY_S = 86_400
AGES = (0, 1, 2, 5, 9, 20, 28, 33, 47, 61, 90, 120, 200, 364)
"""In days, of each service's logs."""


def make(folder: Path, seed: int = 5) -> None:
    """Replace the content of `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    dice, now = random.Random(seed), time.time()
    for service in ("web", "mail", "jobs"):
        logs = folder / "logs" / service
        logs.mkdir(parents=True)
        for number, age in enumerate(AGES):
            path = logs / f"{service}.log{f'.{number}' if number else ''}"
            path.write_bytes(dice.randbytes(dice.randint(2_000, 90_000)))
            os.utime(path, (now - age * DAY_S, now - age * DAY_S))
    cache = folder / "cache"
    cache.mkdir()
    for number in range(6):
        (cache / f"thumb-{number}.bin").write_bytes(dice.randbytes(30_000))
