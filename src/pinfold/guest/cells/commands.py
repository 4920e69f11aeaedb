"""Runs `!command` and scripts as plain child processes: no terminal, the cell's streams, ended by an interrupt."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TextIO

from ..calls import call, is_possible

GRACE_S = 0.1
"""Time for a child to end by the interrupt, which it receives too."""
_BRACED = re.compile(r"(?<!\$)\{([^{}\n]+)\}|\$([A-Za-z_]\w*)")
_INSTALLS = re.compile(
    r"\s*(?:sudo\s+)?(?:\S*python[\d.]*\s+-m\s+|uv\s+)?(?:\S*/)?"
    r"(?:pip[\d.]*|conda|mamba|micromamba)\s+(?:\S+\s+)??install(?:\s+(.*))?\Z",
    re.DOTALL,
)
_VALUED = {
    *("-i", "--index-url", "--extra-index-url", "-c", "--constraint", "-t", "--target", "-n", "-p"),
    *("-r", "--requirement", "-e", "--editable", "-f", "--find-links"),
}
_HARMLESS = {
    *("-q", "-qq", "-qqq", "--quiet", "-v", "--verbose", "-y", "--yes", "-U", "--upgrade", "--user"),
    *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--prefer-binary"),
}
"""Options that can be ignored: they choose neither what is installed nor from where."""


class InstallElsewhere(Exception):
    """Packages are not installed from a cell in this way; the message says how."""

    __module__ = "builtins"  # so that a traceback shows the plain name


class InstallRequest(NamedTuple):
    """What a command would install."""

    packages: list[str]
    options: list[str]
    """Options that would change what is installed."""
    rest: str
    """Further commands on the same line."""


def install(wish: InstallRequest, tell: Callable[[str], object]) -> None:
    """Install packages for a cell with the install tool, one at a time."""
    if not wish.packages and not wish.options:
        raise InstallElsewhere("name the packages to install, with the install tool")
    listed = " ".join(wish.packages)
    if not is_possible():
        raise InstallElsewhere(f"packages are not installed from a cell: use the install tool with {listed!r}")
    if wish.options:
        raise InstallElsewhere(f"only packages can be named here, without {' '.join(wish.options)}")
    if wish.rest:
        raise InstallElsewhere("packages are installed by a line of its own, without further commands")
    for package in wish.packages:
        tell(f"{call('install', package=package)}\n")


def parse_install(command: str) -> InstallRequest | None:
    """Return what a command would install, or None if it installs nothing."""
    found = _INSTALLS.match(command)
    if found is None:
        return None
    first, *rest = re.split(r"[;&|\n]", found[1] or "", maxsplit=1)
    try:
        words = shlex.split(first, comments=True)
    except ValueError:
        words = first.split()
    packages: list[str] = []
    options: list[str] = []
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word.startswith("-"):
            skips = word in _VALUED
            if word not in _HARMLESS:
                options.append(word)
        else:
            packages.append(word)
    return InstallRequest(packages, options, "".join(rest).strip())


def expand_variables(command: str, namespace: dict[str, object]) -> str:
    """Replace `{expression}` and `$name` by values of the program; anything else is left to the shell."""

    def value(found: re.Match[str]) -> str:
        if found[2] is not None:
            return str(namespace[found[2]]) if found[2] in namespace else found[0]
        try:
            return str(eval(found[1], namespace))  # noqa: S307 - the program's own words
        except Exception:
            return found[0]

    return _BRACED.sub(value, command)


def system(command: str) -> int:
    """Run a command with the cell's output streams and return its exit code."""
    return script([*_shell(), command], None)


def getoutput(command: str) -> list[str]:
    """Return the lines a command prints on stdout and stderr."""
    wish = parse_install(command)
    if wish is not None:
        lines: list[str] = []
        install(wish, lines.append)
        return "".join(lines).splitlines()
    text, _, _ = _run([*_shell(), command], None, subprocess.PIPE, subprocess.STDOUT)
    return text.decode("utf-8", "replace").splitlines()


def as_lines(found: list[str]) -> list[str]:
    """Return the lines as IPython's list type where IPython is loaded."""
    text = sys.modules.get("IPython.utils.text")
    return text.SList(found) if text else found


def script(program: list[str], text: str | None) -> int:
    """Run a program with `text` as its input."""
    wish = parse_install(program[-1]) if text is None else None
    if wish is not None:
        install(wish, sys.stdout.write)
        return 0
    data = None if text is None else text.encode("utf-8", "surrogateescape")
    # A stdout that the program replaced, for example to capture it, has no descriptor for the child to write to.
    *said, code = _run(program, data, _descriptor(sys.stdout, 1), _descriptor(sys.stderr, 2))
    for stream, written in zip((sys.stdout, sys.stderr), said, strict=True):
        if written:
            stream.write(written.decode("utf-8", "replace"))
    return code


def run_script(program: list[str], text: str) -> None:
    """As `script`, but raise CalledProcessError for an exit code other than 0."""
    code = script(program, text)
    if code:
        raise subprocess.CalledProcessError(code, program)


def _run(program: list[str], data: bytes | None, stdout: int, stderr: int) -> tuple[bytes, bytes, int]:
    """Run a program; return what it wrote to pipes, and its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    stdin = subprocess.DEVNULL if data is None else subprocess.PIPE
    process = subprocess.Popen(program, stdin=stdin, stdout=stdout, stderr=stderr)
    try:
        out, err = process.communicate(data)
    except BaseException:
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    return out or b"", err or b"", process.returncode


def _descriptor(stream: TextIO, number: int) -> int:
    """Return the descriptor of the cell's own stream; for any other stream, a pipe."""
    with suppress(Exception):
        if stream.fileno() == number:
            return number
    return subprocess.PIPE


def _shell() -> list[str]:
    return ["/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh", "-c"]
