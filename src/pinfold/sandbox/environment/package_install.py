"""Adds packages to a live session: unpacked on the host into a folder of the session's, run only inside.

Each installation is a folder of its own in there, put in place in one step; what begins with a dot is unfinished.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pinfold.sandbox.environment.builder import (
    UNFINISHED,
    Job,
    compile_all,
    install_locked,
    resolve_requirements,
    unusable,
)
from pinfold.sandbox.environment.interpreter import check_python
from pinfold.sandbox.environment.progress import OnProgress, ignore_progress
from pinfold.sandbox.environment.recipe import normalise_package
from pinfold.sandbox.environment.store import distributions, make_readable


def install(
    package: str, site: Path, python: Path, on_progress: OnProgress = ignore_progress, *, writable: Iterable[Path] = ()
) -> dict[str, str]:
    """What was added for `package`, with versions; nothing if it is there already. Blocks. Raises EnvironmentFailed.

    What the environment of `python` has is never replaced: a package that needs another version is refused.
    `writable`: as for `checked_python`.
    """
    asked = normalise_package(package)
    interpreter = check_python(python, writable=writable)
    try:
        site.mkdir(mode=0o755, parents=True, exist_ok=True)
        for stale in site.glob(f"{UNFINISHED}*"):
            shutil.rmtree(stale, ignore_errors=True)
        beside = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=site))
        try:
            return _install_into(Job(python=interpreter, folder=beside, on_progress=on_progress), asked, site)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise unusable(error, site) from error


def _install_into(job: Job, asked: str, site: Path) -> dict[str, str]:
    python, earlier = job.python, list_finished(site)
    have = distributions(python.path.parent.parent / python.packages)
    for folder in earlier:
        have |= distributions(folder)
    known = job.folder / "known.txt"
    known.write_text("".join(f"{name}=={version}\n" for name, version in have.items()), encoding="utf-8")
    text = resolve_requirements(job, [asked], known, have)
    if not text.strip():
        return {}
    requirements = job.folder / "requirements.txt"
    requirements.write_text(text, encoding="utf-8")
    new, place = job.folder / "new", site / f"{len(earlier) + 1:04d}"
    # With the base Python: uv starts the one it is given, and that of the environment would run what is in it.
    install_locked(job, requirements, ["--target", new, "--python", python.base])
    _start_with(python.path, python.base, new / "bin")
    compile_all(job, new, place)
    make_readable(new)
    new.chmod(0o755)
    new.rename(place)
    return distributions(place)


def _start_with(python: Path, base: Path, scripts: Path) -> None:
    """Programs of the packages run in the environment, not in the Python it was made from, which has nothing of it."""
    for script in scripts.iterdir() if scripts.is_dir() else ():
        if script.is_file() and not script.is_symlink():
            first, end, rest = script.read_bytes().partition(b"\n")
            if first == f"#!{base}".encode():
                script.write_bytes(f"#!{python}".encode() + end + rest)


def list_finished(site: Path) -> list[Path]:
    return sorted(entry for entry in site.iterdir() if not entry.name.startswith("."))
