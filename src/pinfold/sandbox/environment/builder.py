"""Builds an environment in a temporary folder, and moves it to its place when complete."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from pinfold.sandbox.environment.store import (
    Environment,
    EnvironmentFailed,
    Interpreter,
    Recipe,
    check_python,
    distributions,
    environments,
    find_built,
    make_readable,
    mark,
    normalise_package,
)
from pinfold.sandbox.environment.uv import (
    OnProgress,
    Progress,
    disk_full,
    explain_failure,
    find_uv,
    ignore_progress,
    progress_of_uv,
    run,
    uv_variables,
)
from pinfold.sandbox.kernel.folders import try_lock

LOCK = ".lock"
UNFINISHED = ".new-"
WAIT_S = 1800.0
LOOK_AGAIN_S = 0.1


class Job(Struct, frozen=True, kw_only=True):
    """One job for uv."""

    python: Interpreter
    folder: Path
    """A folder for temporary files; removed afterwards."""
    held: int | None = None
    """The file descriptor of the lock, if one is held."""
    on_progress: OnProgress = ignore_progress

    def uv(self, *arguments: str | Path, on_line: Callable[[str], None] | None = None) -> str:
        return run(
            [find_uv(), *arguments],
            environment=uv_variables(),
            folder=self.folder,
            keep=self.held,
            on_line=on_line,
            explain=lambda said: explain_failure(said, self.python, self.folder),
        )


def build(
    packages: Iterable[str] = (),
    on_progress: OnProgress = ignore_progress,
    *,
    rebuild: bool = False,
    lock: str | None = None,
    python: Interpreter | None = None,
) -> Environment:
    """Return the environment with these packages, building it if needed. Blocks. Raises EnvironmentFailed.

    `rebuild` removes the old environment, even from sessions that use it.
    """
    recipe = Recipe.of(packages, lock=lock, python=python)
    if not rebuild and (ready := find_built(recipe)):
        return ready
    folder = environments()
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(exist_ok=True)
        with _alone(folder, on_progress) as held:
            if not rebuild and (ready := find_built(recipe)):
                return ready
            return _build_in(recipe, folder, held, on_progress)
    except OSError as error:
        raise unusable(error, folder) from error


def find_unfinished() -> Generator[Path]:
    """Yield what killed builds left behind, if no build is running. Holds the lock meanwhile, so that none starts."""
    folder = environments()
    try:
        held = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if try_lock(held):
            yield from sorted(folder.glob(f"{UNFINISHED}*"))
    finally:
        os.close(held)


def unusable(error: OSError, folder: Path) -> EnvironmentFailed:
    if error.errno == errno.ENOSPC:
        return EnvironmentFailed(disk_full(folder))
    return EnvironmentFailed(f"{error.filename or folder} cannot be used: {error.strerror}")


def _build_in(recipe: Recipe, folder: Path, held: int, on_progress: OnProgress) -> Environment:
    place = folder / recipe.key
    with _beside(folder) as beside:
        job = Job(python=recipe.python, folder=beside, held=held, on_progress=on_progress)
        new = beside / "environment"
        _fill(job, new, recipe)
        compile_all(job, new, place)
        new.chmod(0o755)
        mark(new, recipe)
        if place.exists():
            place.rename(beside / "old")
        new.rename(place)
    ready = find_built(recipe)
    if ready is None:
        raise EnvironmentFailed(f"{place} was built and is gone again; try once more")
    return ready


@contextmanager
def _beside(folder: Path) -> Generator[Path]:
    """Yield a folder to build in, after removing what killed builds left behind. The caller holds the lock."""
    for stale in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(stale, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _fill(job: Job, new: Path, recipe: Recipe) -> None:
    job.on_progress(Progress(phase="resolve"))
    requirements = job.folder / "requirements.txt"
    requirements.write_text(recipe.lock, encoding="utf-8")
    if recipe.packages:
        added = resolve_requirements(job, recipe.packages, requirements, _names(recipe.lock))
        requirements.write_text(f"{recipe.lock}\n{added}", encoding="utf-8")
    job.uv("venv", "--quiet", "--no-project", "--relocatable", "--python", job.python.base, new)
    # All packages in one step, so that uv runs the environment's Python only while it is empty.
    install_locked(job, requirements, ["--python", new / "bin" / "python"])


def resolve_requirements(job: Job, packages: Iterable[str], known: Path, names: Iterable[str]) -> str:
    """Return requirements with hashes for what `packages` need beyond `names`, whose versions `known` fixes."""
    asked = job.folder / "asked.txt"
    asked.write_text("\n".join(packages), encoding="utf-8")
    command = ["pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
    command += ["--only-binary", ":all:", "--python", str(job.python.base), "--constraint", str(known)]
    for name in sorted(set(names)):
        command += ["--no-emit-package", name]
    return job.uv(*command, asked)


def install_locked(job: Job, requirements: Path, into: Sequence[str | Path]) -> None:
    """Install wheels only, and only those whose hash is listed."""
    command = ["pip", "install", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
    job.uv(*command, *into, "--requirements", requirements, on_line=progress_of_uv(job.on_progress))


def compile_all(job: Job, folder: Path, place: Path) -> None:
    """Compile all modules to bytecode that is never checked against the source: inside, both are read-only.

    Uses the base Python without `site`, so that no code of the environment runs, and compileall, which
    PYTHONDONTWRITEBYTECODE does not stop. `place` is the final path.
    """
    total = sum(1 for _ in folder.rglob("*.py"))
    done, is_full = 0, False

    def follow(line: str) -> None:
        nonlocal done, is_full
        is_full = is_full or f"[Errno {errno.ENOSPC}]" in line
        if line.startswith("Compiling "):
            done += 1
            job.on_progress(Progress(phase="compile", done=min(done, total), total=total))

    job.on_progress(Progress(phase="compile", total=total))
    run(
        [job.python.base, "-I", "-S", "-u", "-c", _COMPILE, folder, place],
        environment={},
        folder=job.folder,
        keep=job.held,
        on_line=follow,
        explain=lambda said: f"the bytecode could not be made: {said.strip()[-300:]}",
    )
    if is_full:
        raise EnvironmentFailed(disk_full(place.parent))


# Files that do not compile are ignored: some packages ship such files as test data.
_COMPILE = """
import compileall, os, py_compile, sys
folder, place = sys.argv[1:]
os.dup2(2, 1)
compileall.compile_dir(folder, maxlevels=60, quiet=0, workers=0, stripdir=folder, prependdir=place,
                       invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""


@contextmanager
def _alone(folder: Path, on_progress: OnProgress) -> Generator[int]:
    """Hold the build lock. Every helper process inherits the descriptor, so the lock lasts until the last one ends."""
    held = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up_at = time.monotonic() + WAIT_S
    try:
        is_free = try_lock(held)
        if not is_free:
            on_progress(Progress(phase="wait"))
        while not is_free and not try_lock(held):
            if time.monotonic() > give_up_at:
                raise EnvironmentFailed(
                    f"another build has held {folder / LOCK} for {WAIT_S:g} s; end it and try again"
                )
            time.sleep(LOOK_AGAIN_S)
        yield held
    finally:
        os.close(held)


def _names(lock: str) -> list[str]:
    return [line.partition("==")[0].strip() for line in lock.splitlines() if "==" in line and line[0].isalnum()]


def install(package: str, site: Path, python: Path, *, writable: Iterable[Path] = ()) -> dict[str, str]:
    """Install `package` into `site`. Returns what was added, with versions. Blocks. Raises EnvironmentFailed.

    Packages in the environment of `python` are never replaced: a package that needs another version is refused.
    `writable`: as for `check_python`.
    """
    asked = normalise_package(package)
    interpreter = check_python(python, writable=writable)
    try:
        site.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _beside(site) as beside:
            return _install_into(Job(python=interpreter, folder=beside), asked, site)
    except OSError as error:
        raise unusable(error, site) from error


def _install_into(job: Job, asked: str, site: Path) -> dict[str, str]:
    python = job.python
    earlier = sorted(entry for entry in site.iterdir() if not entry.name.startswith("."))
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
    # With the base Python: uv starts the Python it is given, and the environment's would run installed code.
    install_locked(job, requirements, ["--target", new, "--python", python.base])
    _start_with(python.path, python.base, new / "bin")
    compile_all(job, new, place)
    make_readable(new)
    new.chmod(0o755)
    new.rename(place)
    return distributions(place)


def _start_with(python: Path, base: Path, scripts: Path) -> None:
    """Make the packages' scripts start with the environment's Python, not the base Python, which lacks its packages."""
    for script in scripts.iterdir() if scripts.is_dir() else ():
        if script.is_file() and not script.is_symlink():
            first, end, rest = script.read_bytes().partition(b"\n")
            if first == f"#!{base}".encode():
                script.write_bytes(f"#!{python}".encode() + end + rest)
