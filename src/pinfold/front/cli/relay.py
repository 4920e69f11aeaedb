"""Passes `pinfold exec` on to the warm helper, if one runs. Imports only modules that Python has already loaded.

If anything is not as expected, the command runs without the helper. The other end is `helper.py`.
"""

from __future__ import annotations

import os
import sys

SOCKET = "helper.sock"
TAKEN, GO, EXIT = b"taken ", b"g", b"exit "
"""The messages: the helper names the process that will run the command, receives GO, and sends the exit code."""
WAIT_S = 5.0
"""How long the helper may take to accept; it may be rehearsing."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket


def relay() -> int | None:
    """Run the command in the helper and return its exit code; None if no helper ran it."""
    folder = _folder()
    if folder is None or os.environ.get("PINFOLD_SANDBOX_WARM") == "off":
        return None
    try:
        status = os.stat(folder)  # noqa: PTH116 - no Path here
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None
        helper = _connect_helper(folder)
        if helper is None:
            return None
        helper.settimeout(WAIT_S)
        _ask(helper)
        answer = _line(helper)
        if not answer.startswith(TAKEN):
            return None
        helper.sendall(GO)  # from here on only the helper may run the command
        helper.settimeout(None)
    except (OSError, ImportError, AttributeError):
        return None
    return _wait(helper, int(answer[len(TAKEN) :]))


def _folder() -> str | None:
    """Return the same folder as `warm_dir` in `app/paths.py`."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = os.environ.get("HOME", "")
    if not state.startswith("/"):
        state = f"{home}/.local/state"
    return f"{state}/pinfold/warm" if state.startswith("/") else None


def _connect_helper(folder: str) -> socket | None:
    from _socket import AF_UNIX, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

    helper = socket(AF_UNIX, SOCK_STREAM)
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        helper.connect(f"/proc/self/fd/{place}/{SOCKET}")  # works for folders with paths of any length
    finally:
        os.close(place)
    about = helper.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)
    return helper if int.from_bytes(about[4:8], sys.byteorder) == os.geteuid() else None


def _ask(helper: socket) -> None:
    """Send folder and streams as descriptors, the rest as strings separated by zeros."""
    from _socket import SCM_RIGHTS, SOL_SOCKET

    umask = os.umask(0o077)
    os.umask(umask)
    head = [sys.executable, str(umask), str(len(sys.argv) - 1), *sys.argv[1:]]
    words = b"\0".join([*map(os.fsencode, head), *(name + b"=" + value for name, value in os.environb.items())])
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fds = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, here))
        helper.sendmsg([len(words).to_bytes(8, "big")], [(SOL_SOCKET, SCM_RIGHTS, fds)])
    finally:
        os.close(here)
    helper.sendall(words)


def _wait(helper: socket, pid: int) -> int:
    """Pass signals on until the command ends. If this process dies, the closed connection ends the command."""
    import signal  # loaded while the helper works

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: _send(pid, number))
    try:
        answer = _line(helper)
    except OSError:
        answer = b""
    if answer.startswith(EXIT):
        return int(answer[len(EXIT) :])
    sys.stderr.write("pinfold: the warm helper ended; run the command again\n")
    return 1


def _send(pid: int, number: int) -> None:
    try:  # noqa: SIM105 - contextlib is not at hand
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended


def _line(helper: socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (part := helper.recv(1)):
        line += part
    return line
