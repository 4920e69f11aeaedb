"""Runs `!command` and scripts as plain child processes: no terminal, our streams, ended by an interrupt."""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    import subprocess
    from typing import Any

GRACE_S = 0.1
"""For a child to end by the interrupt it got together with us."""
_BRACED = re.compile(r"(?<!\$)\{([^{}\n]+)\}|\$([A-Za-z_]\w*)")
_INSTALLS = re.compile(
    r"\s*(?:sudo\s+)?(?:\S*python[\d.]*\s+-m\s+|uv\s+)?(?:\S*/)?"
    r"(?:pip[\d.]*|conda|mamba|micromamba)\s+(?:\S+\s+)??install(?:\s+(.*))?\Z",
    re.DOTALL,
)
_VALUED = {"-i", "--index-url", "--extra-index-url", "-c", "--constraint", "-t", "--target", "-n", "-p"}


class InstallElsewhere(Exception):
    """Packages are not installed from a cell; the text says how."""

    __module__ = "builtins"  # a traceback then says its plain name


def install(requirements: list[str]) -> None:
    """The one place where a cell's wish for packages ends up."""
    if not requirements:
        raise InstallElsewhere("name the packages to install, with the install tool")
    listed = " ".join(requirements)
    raise InstallElsewhere(f"packages are not installed from a cell: use the install tool with {listed!r}")


def requested(command: str) -> list[str] | None:
    """The packages a command would install; None when it would install none."""
    found = _INSTALLS.match(command)
    if found is None:
        return None
    import shlex

    try:
        words = shlex.split(re.split(r"[;&|\n]", found[1] or "")[0], comments=True)
    except ValueError:
        words = (found[1] or "").split()
    wanted: list[str] = []
    skips = False
    for word in words:
        if skips or word.startswith("-"):
            skips = word in _VALUED
        else:
            wanted.append(word)
    return wanted


def expanded(command: str, namespace: dict[str, object]) -> str:
    """With `{expression}` and `$name` of the program's put in; whatever is none of these is the shell's."""

    def value(found: re.Match[str]) -> str:
        if found[2] is not None:
            return str(namespace[found[2]]) if found[2] in namespace else found[0]
        try:
            return str(eval(found[1], namespace))  # noqa: S307 - the program's own words
        except Exception:
            return found[0]

    return _BRACED.sub(value, command)


def system(command: str) -> int:
    """Run it, its output being the cell's, and return its exit code."""
    return script([*_shell(), command], None)


def getoutput(command: str) -> list[str]:
    """The lines it prints on stdout and stderr."""
    import subprocess

    wanted = requested(command)
    if wanted is not None:
        install(wanted)
    _flush()
    process = subprocess.Popen(
        [*_shell(), command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    text, _ = _communicated(process, None)
    return text.decode("utf-8", "replace").splitlines()


def script(program: list[str], text: str | None) -> int:
    """Run a program with `text` as its input."""
    import subprocess

    wanted = requested(program[-1]) if text is None else None
    if wanted is not None:
        install(wanted)
    _flush()
    # A stdout the program replaced (to capture it, say) has no descriptor for the child to write to.
    streams = [_descriptor(sys.stdout, 1), _descriptor(sys.stderr, 2)]
    process = subprocess.Popen(
        program,
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE if streams[0] is None else streams[0],
        stderr=subprocess.PIPE if streams[1] is None else streams[1],
    )
    data = None if text is None else text.encode("utf-8", "surrogateescape")
    for stream, said in zip((sys.stdout, sys.stderr), _communicated(process, data), strict=True):
        if said:
            stream.write(said.decode("utf-8", "replace"))
    return process.returncode


def _communicated(process: subprocess.Popen[bytes], data: bytes | None) -> tuple[bytes, bytes]:
    import subprocess

    try:
        out, err = process.communicate(data)
    except BaseException:
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    return out or b"", err or b""


def _descriptor(stream: Any, number: int) -> int | None:
    try:
        return number if stream.fileno() == number else None
    except Exception:
        return None


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _shell() -> list[str]:
    return ["/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh", "-c"]
