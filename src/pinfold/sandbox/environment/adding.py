"""Adds packages to a live session: unpacked on the host into a folder of the session's, run only inside.

Each installation is a folder of its own in there, put in place in one step; what begins with a dot is unfinished.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pinfold.sandbox.environment.errors import EnvironmentFailed
from pinfold.sandbox.environment.interpreter import Interpreter, checked_python
from pinfold.sandbox.environment.making import UNFINISHED, compile_all, install_locked, resolved
from pinfold.sandbox.environment.progress import OnProgress, unseen
from pinfold.sandbox.environment.recipe import normalised
from pinfold.sandbox.environment.store import distributions


def install(package: str, site: Path, python: Path, on_progress: OnProgress = unseen) -> dict[str, str]:
    """What was added for `package`, with versions; nothing if it is there already. Blocks. Raises EnvironmentFailed.

    What the environment of `python` has is never replaced: a package that needs another version is refused.
    """
    asked = normalised(package)
    interpreter = checked_python(python)
    try:
        site.mkdir(mode=0o755, parents=True, exist_ok=True)
        for stale in site.glob(f"{UNFINISHED}*"):
            shutil.rmtree(stale, ignore_errors=True)
        beside = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=site))
        try:
            return _added(asked, site, beside, interpreter, on_progress)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise EnvironmentFailed(f"{error.filename or site} cannot be used: {error.strerror}") from error


def _added(
    asked: str, site: Path, beside: Path, python: Interpreter, on_progress: OnProgress
) -> dict[str, str]:
    have = distributions(python.path.parent.parent / python.packages)
    for earlier in finished(site):
        have |= distributions(earlier)
    known = beside / "known.txt"
    known.write_text("".join(f"{name}=={version}\n" for name, version in have.items()), encoding="utf-8")
    text = resolved([asked], known, have, python, beside, None)
    if not text.strip():
        return {}
    requirements = beside / "requirements.txt"
    requirements.write_text(text, encoding="utf-8")
    new, place = beside / "new", site / f"{len(finished(site)) + 1:04d}"
    # With the base Python: uv starts the one it is given, and that of the environment would run what is in it.
    into = ["--target", new, "--python", python.base]
    install_locked(requirements, into, python, beside, None, on_progress)
    compile_all(new, place, python, None, on_progress)
    new.chmod(0o755)
    new.rename(place)
    return distributions(place)


def finished(site: Path) -> list[Path]:
    return sorted(entry for entry in site.iterdir() if not entry.name.startswith("."))
