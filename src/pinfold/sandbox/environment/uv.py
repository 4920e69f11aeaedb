"""Runs uv, reports its progress, and explains its failures in one line."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.sandbox.environment.store import EnvironmentFailed, Interpreter

Phase: TypeAlias = Literal["wait", "resolve", "download", "install", "compile"]


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of a build. `total` is 0 while unknown, and grows as downloads are found. Downloads count in bytes."""

    phase: Phase
    done: int = 0
    total: int = 0


OnProgress: TypeAlias = Callable[[Progress], None]


def ignore_progress(_progress: Progress) -> None:
    """The default: progress is not shown."""


_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_BEGUN = r"Downloading (\S+) \(([\d.]+)(B|KiB|MiB|GiB)\)\s*"


def progress_of_uv(on_progress: OnProgress) -> Callable[[str], None]:
    """Return a function that takes uv's output lines; an empty line repeats the last progress."""
    sizes: dict[str, float] = {}
    largest = 0.0
    last = Progress(phase="download")

    def follow(line: str) -> None:
        nonlocal largest, last
        if begun := re.fullmatch(_BEGUN, line):
            sizes[begun[1]] = float(begun[2]) * _SIZES[begun[3]]
        match line.split():
            case ["Downloading", *_]:
                pass
            case ["Downloaded", name]:
                largest = max(largest, sizes.get(name, 0.0))
            case ["Prepared" | "Installed" as word, count, *_] if count.isdigit():
                done = int(count) if word == "Installed" else 0
                last = Progress(phase="install", done=done, total=int(count))
            case [] if sizes:
                pass
            case _:
                return
        if last.phase == "download":
            # Downloads run in parallel and share the line: assume as much of each as of the largest finished one.
            done = sum(min(size, largest) for size in sizes.values())
            last = Progress(phase="download", done=int(done), total=int(sum(sizes.values())))
        on_progress(last)

    return follow


LIMIT_S = 900.0
TICK_S = 0.2
"""Seconds to wait for a line before `on_line` is called with an empty one."""
WORDS = 300
# Variables that would make uv use another environment, or build packages from source.
_MISLEADING = """
PYTHONHOME PYTHONPATH UV_BREAK_SYSTEM_PACKAGES UV_BUILD_CONSTRAINT UV_COMPILE_BYTECODE UV_CONSTRAINT UV_EXCLUDE
UV_ISOLATED UV_NO_BINARY UV_NO_BINARY_PACKAGE UV_OVERRIDE UV_PROJECT_ENVIRONMENT UV_PYTHON UV_SYSTEM_PYTHON
UV_VENV_SEED UV_WORKING_DIR VIRTUAL_ENV
"""
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def run(
    argv: Sequence[str | Path],
    *,
    environment: dict[str, str],
    folder: Path,
    keep: int | None,
    on_line: Callable[[str], None] | None,
    explain: Callable[[str], str],
) -> str:
    """Run a program, return its stdout. `on_line` gets its stderr, and "" while it is silent. Raises EnvironmentFailed.

    `folder` is its working directory, so that no project's settings affect it. `keep` is a file descriptor it inherits:
    that of a lock, which then outlives this process if that is killed.
    """
    with tempfile.TemporaryFile() as answer:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.PIPE,
                pass_fds=() if keep is None else [keep],
                cwd=folder,
                env=environment,
                start_new_session=True,  # so that `_end` also ends what it started
                umask=0o022,  # if the host is root, sessions run under other user ids and must be able to read it
            )
        except OSError as error:
            raise EnvironmentFailed(f"{argv[0]} cannot be started: {error.strerror}") from error
        code, said = _follow(process, on_line)
        if code:
            if code == -signal.SIGKILL:
                said += f"it was killed, at the latest after {LIMIT_S:g} s"
            raise EnvironmentFailed(explain(said))
        answer.seek(0)
        return answer.read().decode("utf-8", "replace")


def _follow(process: subprocess.Popen[bytes], on_line: Callable[[str], None] | None) -> tuple[int, str]:
    """Wait for the process and return its exit code and stderr. Kills it after `LIMIT_S`."""
    assert process.stderr is not None
    until = monotonic() + LIMIT_S
    said, rest, data = b"", b"", None
    poll = select.poll()  # select() refuses descriptors above 1,023, which a busy server has
    with process.stderr as stderr:
        poll.register(stderr, select.POLLIN)
        try:
            while data != b"":
                lines = [b""]
                if poll.poll(TICK_S * 1000):
                    data = os.read(stderr.fileno(), 1 << 16)
                    said += data
                    *lines, rest = (rest + data).split(b"\n")
                if on_line:
                    for line in lines:
                        on_line(line.decode("utf-8", "replace"))
                if monotonic() > until:
                    _end(process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - monotonic()))
        finally:
            _end(process)
            process.wait()
    return process.returncode, said.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # not reaped yet, so its pid cannot have been reused
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def find_uv() -> str:
    """Return the uv installed with Pinfold, or else the one on the PATH. Raises EnvironmentFailed."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, OSError):
        found = shutil.which("uv")
    if found is None:
        raise EnvironmentFailed("uv is missing; install it beside Pinfold: pip install uv")
    return found


def uv_variables() -> dict[str, str]:
    """Return this process's environment, with pip's certificates and index translated for uv where it has none."""
    given = {name: value for name, value in os.environ.items() if name not in _MISLEADING.split()}
    given["NO_COLOR"] = "1"
    if "SSL_CERT_FILE" not in given:
        if "PIP_CERT" in given:
            given["SSL_CERT_FILE"] = given["PIP_CERT"]
        elif any(os.path.exists(path) for path in _CERTIFICATES):
            given.setdefault("UV_SYSTEM_CERTS", "1")
            given.setdefault("UV_NATIVE_TLS", "1")  # before uv 0.11
    if "PIP_INDEX_URL" in given and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & given.keys():
        given["UV_DEFAULT_INDEX"] = given["PIP_INDEX_URL"]
    return given


def explain_failure(said: str, python: Interpreter, folder: Path) -> str:
    """Return one line for the user that explains uv's output."""
    text = _flat(said)
    if re.search("No space left on device|os error 28|Errno 28", text):
        return disk_full(folder)
    if re.search("network was disabled|Network connectivity is disabled", text):
        return "packages must be fetched once, and uv is told to stay offline; unset UV_OFFLINE and try again"
    if words := _explain_unreachable(text):
        return words
    python_words = f"Python {'.'.join(map(str, python.version[:2]))} on {python.machine}"
    for pattern, words in _EXPLANATIONS.items():
        if found := re.search(pattern, text):
            return words.format(found[1], python=python_words)
    return f"uv failed: {text[:WORDS]}"


_NO_WHEEL = (
    "{0} has no wheel for {python}, and only wheels are installed: building it would run its code on this machine"
)
_EXPLANATIONS = {
    r"[Bb]ecause (\S+) was not found in the package registry": (
        "there is no package {0!r} in the package index; check the spelling"
    ),
    r"[Bb]ecause there (?:is|are) no versions? of (\S+?),? ": (
        "there is no {0} in the package index; ask for another version"
    ),
    r"([\w.\[\]=<>!~+-]+) has no (?:usable )?wheels": _NO_WHEEL,
    r"Wheels are (?:required|not available) for `([^`]+)`": _NO_WHEEL,
    r"[Hh]ash mismatch for `?([^`\s]+)`?": (
        "what was downloaded for {0} is not what the lock names (hash mismatch); nothing was installed"
    ),
}
"""Patterns of uv's messages, in the order tried, and the explanation of each."""


def disk_full(folder: Path) -> str:
    return f"the disk is full: make room for {folder} (about 1 GB) or in uv's cache (`uv cache dir`), and try again"


def _explain_unreachable(text: str) -> str | None:
    where = re.search(r"(?:Failed to fetch|Failed to download|for url)\W{0,3}(?:\w+://)([^/\s`)]+)", text)
    if where is None:
        return None
    host = where[1].rpartition("@")[2]  # never the password of a mirror
    status = re.search(r"HTTP status \w+ error \((.+?)\)", text)
    if status:
        return f"{host} answered {status[1]}; check the index that UV_DEFAULT_INDEX or pip's settings name"
    why = text.rpartition("cause: ")[2][:WORDS]
    return (
        f"{host} cannot be reached ({why}); connect to the network, set HTTPS_PROXY, or name a mirror with "
        "UV_DEFAULT_INDEX (an environment once built needs no network)"
    )


def _flat(said: str) -> str:
    """Return uv's error message on one line, without its box drawing and without messages before the error."""
    begin = re.search(r"^\s*(?:error:|\u00d7)", said, re.MULTILINE)
    text = said[begin.start() :] if begin else said
    return re.sub(r"^(?:error:|\u00d7)\s*", "", re.sub(r"[\s│╰─▶├]+", " ", text).strip())
