"""The part of the suite that runs in the cage. Started by suite.py with its orders on standard input; not by hand."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
# In the cage there is no other source tree than this one.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from bench.escape_suite import cage
from bench.escape_suite.program import Level

ROOT = Path(__file__).resolve().parents[2]


def kept(python: Path) -> list[Path]:
    """What of the machine is needed in the cage."""
    found = sorted({ROOT, *cage.python_folders(python), *cage.python_folders(Path(sys.executable))})
    return [path for path in found if not any(path != other and path.is_relative_to(other) for other in found)]


def work(level: Level, layers: list[str], names: list[str], python: Path) -> None:
    cage.refuse_outside()
    import anyio
    from bench.escape_suite.catalogue import AWAITED, BENIGN, HOSTILE
    from bench.escape_suite.program import Planting
    from bench.escape_suite.project import Project
    from bench.escape_suite.runs import attempt_all, plant_all, work_all
    from bench.escape_suite.weak_builds import weakened

    wanted = set(names)
    hostile = [program for program in [*HOSTILE, *AWAITED] if program.name in wanted]
    planting = [program for program in hostile if isinstance(program, Planting)]
    others = [program for program in hostile if not isinstance(program, Planting)]
    benign = [program for program in BENIGN if program.name in wanted]

    async def run(folder: Path) -> None:
        provider = weakened(layers, python, folder, level)
        project = Project(python)
        if benign:
            await work_all(provider, benign, project)
        if planting:
            await plant_all(provider, planting, project)
        if others:
            await attempt_all(provider, others, [*kept(python), folder])

    with tempfile.TemporaryDirectory(dir="/opt") as folder:
        anyio.run(run, Path(folder))


def main() -> None:
    if sys.argv[1:] != ["enter"]:
        cage.refuse_outside()
    os.lseek(0, 0, os.SEEK_SET)
    orders = json.load(sys.stdin)
    python = Path(orders["python"])
    if sys.argv[1:] == ["enter"]:
        again = [sys.executable, __file__, "work"]
        cage.enter(orders["kind"], kept(python), orders["uid"], again)
    work(orders["level"], orders["layers"], orders["names"], python)


if __name__ == "__main__":
    main()
