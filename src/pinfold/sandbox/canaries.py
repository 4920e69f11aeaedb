"""Proves that a session is shut in: it is made to try, on bait of our own. What got out is named.

Every attempt is harmless in itself, so the same program run without isolation shows that the bait works.
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from pinfold.sandbox.contract import Session
from pinfold.sandbox.folders import folder

_ATTEMPTS = """
import ctypes, json, os, socket
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
def host_is_seen():
    os.kill(bait["pid"], 0)
    try:
        return bait["secret"] in of_host("cmdline")  # or it is one of its own, with the same number
    except FileNotFoundError:
        return True
def status(field):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines[field].strip(), 16)
print(json.dumps({{
    "reads a file outside": got(lambda: open(bait["file"]).read() == bait["secret"]),
    "writes a file outside": got(lambda: open(bait["file"] + ".made", "w").write("x")),
    "reaches the host's loopback": got(lambda: connected(socket.AF_INET, ("127.0.0.1", bait["port"]))),
    "reaches the host's abstract sockets": got(lambda: connected(socket.AF_UNIX, "\\0" + bait["name"])),
    "sees the host's processes": got(host_is_seen),
    "reads the host's environment": got(lambda: bait["secret"] in of_host("environ")),
    "has capabilities": status("CapEff") != 0,
    "can gain privileges": status("NoNewPrivs") != 1,
    "makes namespaces": got(lambda: ctypes.CDLL(None).unshare(0x10000000) == 0),
    "has no system call filter": status("Seccomp") != 2,
}}))
"""


@contextmanager
def bait() -> Generator[str]:
    """A program that tries everything, and things outside for it to find."""
    word = secrets.token_hex(8)
    with (
        folder("bait") as place,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen(
            ["/bin/sh", "-c", "read _", word],
            stdin=subprocess.PIPE,
            env={"PINFOLD_BAIT": word},
        ) as process,
    ):
        file = place / "secret"
        file.write_text(word, encoding="ascii")
        place.chmod(0o777)
        file.chmod(0o666)
        abstract.bind(f"\0pinfold-{word}")
        abstract.listen(1)
        laid = {
            "file": str(file),
            "secret": word,
            "port": listener.getsockname()[1],
            "name": f"pinfold-{word}",
            "pid": process.pid,
        }
        yield _ATTEMPTS.format(bait=json.dumps(laid))


async def holes(session: Session) -> list[str]:
    """What this session could do that an isolated one must not. An empty list is the proof."""
    with bait() as program:
        outcome = await session.run(program, timeout_s=20)
    try:
        found: dict[str, bool] = json.loads(outcome.stdout)
    except ValueError:
        return [f"the attempt itself failed: {(outcome.error or outcome.status).strip()[-300:]}"]
    return [name for name, got_out in found.items() if got_out]
