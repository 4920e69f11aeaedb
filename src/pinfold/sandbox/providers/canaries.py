"""Proves that a session is isolated, by having it try to reach bait outside, and names each attempt that succeeds.

Every attempt is harmless in itself, so the same program run without isolation shows that the bait works.
"""

from __future__ import annotations

import ctypes
import json
import secrets
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from pinfold.sandbox.contract import SandboxUnavailable, Session
from pinfold.sandbox.kernel.folders import folder

_PRIVATE, _REMOVE = 0, 0
_ATTEMPTS = """
import ctypes, json, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
bait = json.loads({bait!r})
def got(attempt):
    try:
        return bool(attempt())
    except (OSError, ValueError):
        return False
def connected(family, address):
    with socket.socket(family) as caller:
        caller.settimeout(2)
        caller.connect(address)
        return True
def of_host(name):
    return open(f"/proc/{{bait['pid']}}/{{name}}").read()
def is_host():
    try:
        return bait["secret"] in of_host("cmdline")  # or it is one of its own, with the same number
    except OSError:
        return True
def told_by_a_pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        return ours.sendto(b"x", bait["mailbox"])
def emptied(flags):
    os.close(os.open(bait["full"], flags))
    return os.stat(bait["full"]).st_size == 0
def same_priority():
    return os.setpriority(os.PRIO_PROCESS, bait["pid"], os.getpriority(os.PRIO_PROCESS, bait["pid"])) is None
def status(field):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines[field].strip(), 16)
print(json.dumps({{
    "reads a file outside": got(lambda: open(bait["file"]).read() == bait["secret"]),
    "writes a file outside": got(lambda: open(bait["file"] + ".made", "w").write("x")),
    "empties a file outside": got(lambda: emptied(os.O_RDONLY | os.O_TRUNC) or os.truncate(bait["full"], 0) is None),
    "changes the mode of a file outside": got(lambda: os.chmod(bait["file"], 0o666) is None),
    "changes the times of a file outside": got(lambda: os.utime(bait["file"]) is None),
    "watches a folder outside": got(lambda: libc.inotify_add_watch(libc.inotify_init1(0), bait["folder"].encode(), 2) >= 0),
    "reads the host's shared memory": got(lambda: libc.shmat(bait["memory"], None, 0o10000) != ctypes.c_void_p(-1).value),
    "reaches the host's loopback": got(lambda: connected(socket.AF_INET, ("127.0.0.1", bait["port"]))),
    "reaches the host's abstract sockets": got(lambda: connected(socket.AF_UNIX, "\\0" + bait["name"])),
    "reaches the host's sockets by path": got(lambda: connected(socket.AF_UNIX, bait["socket"])),
    "sends to the host's sockets by path": got(told_by_a_pair),
    "sees the host's processes": got(lambda: os.kill(bait["pid"], 0) is None and is_host()),
    "reads the host's environment": got(lambda: bait["secret"] in of_host("environ")),
    "reads the host's command line": got(lambda: bait["secret"] in of_host("cmdline")),
    "reads the host's limits": got(lambda: resource.prlimit(bait["pid"], resource.RLIMIT_CORE) and is_host()),
    "sets the host's priority": got(lambda: same_priority() and is_host()),
    "has capabilities": status("CapEff") != 0,
    "can gain privileges": status("NoNewPrivs") != 1,
    "makes namespaces": got(lambda: libc.unshare(0x10000000) == 0),
    "has no system call filter": status("Seccomp") != 2,
}}))
"""


@contextmanager
def bait() -> Generator[str]:
    """Lay out the bait, and yield the program that tries to reach it."""
    word = secrets.token_hex(8)
    with (
        folder("bait") as place,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen(
            ["/bin/sh", "-c", "read _", word], stdin=subprocess.PIPE, env={"PINFOLD_BAIT": word}
        ) as process,
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mailbox,
        _shared_memory() as memory,
    ):
        for heard, address in ((abstract, f"\0pinfold-{word}"), (by_path, f"{place}/socket")):
            heard.bind(address)
            heard.listen(1)
        mailbox.bind(f"{place}/mailbox")
        (place / "full").write_text("full", encoding="ascii")
        (place / "secret").write_text(word, encoding="ascii")
        place.chmod(0o777)
        for file in place.iterdir():
            file.chmod(0o666)
        laid = {
            "folder": str(place),
            "file": f"{place}/secret",
            "full": f"{place}/full",
            "secret": word,
            "socket": f"{place}/socket",
            "mailbox": f"{place}/mailbox",
            "memory": memory,
            "port": listener.getsockname()[1],
            "name": f"pinfold-{word}",
            "pid": process.pid,
        }
        yield _ATTEMPTS.format(bait=json.dumps(laid))


@contextmanager
def _shared_memory() -> Generator[int]:
    """Yield the id of a System V shared memory page of this user; -1 if there is no such memory."""
    libc = ctypes.CDLL(None)
    page: int = libc.shmget(_PRIVATE, 4096, 0o600)
    try:
        yield page
    finally:
        if page >= 0:
            libc.shmctl(page, _REMOVE, None)


async def find_holes(session: Session) -> list[str]:
    """Return what this session could do that an isolated one must not. An empty list proves isolation."""
    with bait() as program:
        outcome = await session.run(program, timeout_s=20)
    try:
        found: dict[str, bool] = json.loads(outcome.stdout)
    except ValueError:
        return [f"the attempt itself failed: {(outcome.error or outcome.status).strip()[-300:]}"]
    return [name for name, got_out in found.items() if got_out]


async def prove(session: Session) -> None:
    """Have the session try everything, and close it. Raises SandboxUnavailable if an attempt succeeds."""
    try:
        found = await find_holes(session)
    finally:
        await session.close()
    if found:
        raise SandboxUnavailable(f"a session here is not isolated: it {', it '.join(found)}")
