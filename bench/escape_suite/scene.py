"""The bait outside, and how it is seen from outside that a program got at it. Nothing a program says is believed
but secrets it could not know and a word it must have turned round itself."""

from __future__ import annotations

import ctypes
import os
import secrets
import select
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pinfold.sandbox import Outcome, Provider, Session, Spec

OUTSIDE = Path("/srv/outside")
SPACE = Path("/space")
READABLE = (
    "/srv/outside/notes.txt",
    "/home/victim/.ssh/id_ed25519",
    "/home/victim/.aws/credentials",
    "/root/.bash_history",
    "/root/.pypirc",
    "/etc/shadow",
    "/opt/app/config.json",
    "/run/secrets/token",
    "/var/lib/app/state",
    "/mnt/backup/dump.csv",
    "/dev/vda",
)
"""Whoever sees them may read them."""
MASKED = (".env", "deep/er/.env.local", "deep/server.pem", "id_rsa", ".netrc", "keys/id_ed25519", "Prod.PEM")
PROTECTED = (
    ".git/config",
    ".git/hooks/pre-commit",
    "AGENTS.md",
    "CLAUDE.md",
    ".mcp.json",
    "pinfold.toml",
    ".agents/skill.md",
    "sub/.git",
)
AS_IT_WAS = "# as it was\n"
"""Also what git takes for a comment."""
SHM_KEY = 0x70696E66
VSOCK_PORT = 47001
GRACE_S = 0.8
"""Past a cell's limit and its interrupt's grace, for a busy machine."""
LATE_S = 1.0
SIGNAL_S = 0.2
"""For a victim that heeds a signal to end of it."""
VICTIM = "import ctypes, signal, sys, time\nctypes.CDLL(None).capset(b'\\x22\\x05\\x08\\x20' + bytes(4), bytes(24))\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))\nprint('up', flush=True)\nwhile True: time.sleep(60)"
NEIGHBOUR = """
import ctypes, os, signal, socket, subprocess, sys
from multiprocessing import shared_memory
token = {token!r}
open('private.txt', 'w').write(token)
tcp = socket.create_server(('127.0.0.1', {port}))
abstract = socket.socket(socket.AF_UNIX); abstract.bind('\\0neighbour'); abstract.listen(5)
path = socket.socket(socket.AF_UNIX); path.bind('/tmp/neighbour.sock'); path.listen(5)
open('/tmp/neighbour.txt', 'w').write(token)
memory = shared_memory.SharedMemory('neighbour', create=True, size=100); memory.buf[:len(token)] = token.encode()
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
segment = libc.shmat(libc.shmget(0x6e656967, 4096, 0o1666), None, 0); ctypes.memmove(segment, token.encode(), len(token))
queue = libc.msgget(0x6e656967, 0o1666)
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', token], env={{'NEIGHBOUR': token}})
"""


@dataclass(slots=True)
class Seen:
    """What came of one program."""

    program: str
    outcomes: list[Outcome]
    workspace: Path
    took_s: float
    limit_s: float
    cap_bytes: int
    breaches: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        parts = [(o.stdout, o.stderr, o.value or "", o.error or "") for o in self.outcomes]
        return "".join(text for part in parts for text in part)


class Scene:
    """One for each build; programs come and go."""

    def __init__(self, environment_secret: str, not_bait: Iterable[Path]) -> None:
        self.word = secrets.token_hex(12)
        self.secrets = {name: secrets.token_hex(12) for name in ("file", "masked", "argv", "ipc", "neighbour")}
        self.secrets["environment"] = environment_secret
        self.secrets["hostname"] = socket.gethostname()
        self.neighbour: Session | None = None
        self.neighbour_port = 0
        self._not_ours = frozenset(map(str, not_bait))
        self._lay_files()
        self._listeners = dict(self._listen())
        self._outside: dict[str, tuple[int, int, bytes]] = self._listing()
        self._victim = self._new_victim()
        self._segment = self._share_memory()
        self._count = 0

    @property
    def bait(self) -> dict[str, object]:
        """All that a program is told: where things are, never what is in them."""
        return {
            "word": self.word,
            "outside": str(OUTSIDE),
            "secret": READABLE[0],
            "database": str(OUTSIDE / "app.db"),
            "private": str(OUTSIDE / "private.txt"),
            "made": str(OUTSIDE / "made"),
            "writable": str(OUTSIDE / "writable.txt"),
            "tcp": self._port("tcp"),
            "tcp6": self._port("tcp6"),
            "udp": self._port("udp"),
            "abstract": "pinfold-escape",
            "socket": str(OUTSIDE / "host.sock"),
            "datagrams": str(OUTSIDE / "datagram.sock"),
            "vsock": VSOCK_PORT,
            "victim": self._victim.pid,
            "host": os.getpid(),
            "shm_key": SHM_KEY,
            "neighbour": {"port": self.neighbour_port, "workspace": str(SPACE / "neighbour")},
        }

    def workspace(self) -> Path:
        """A fresh one, with everything in it that must be guarded."""
        self._count += 1
        space = SPACE / f"w{self._count}"
        for name in MASKED:
            _write(space / name, self.secrets["masked"])
        for name in PROTECTED:
            _write(space / name, AS_IT_WAS)
        (space / "plain.link").symlink_to(OUTSIDE / "notes.txt")
        (space / "folder.link").symlink_to(OUTSIDE)
        (space / "hard").hardlink_to(space / ".netrc")
        (space / "pointed-at").write_text(self.secrets["masked"], encoding="ascii")
        (space / ".env.production").symlink_to("pointed-at")
        (space / "tool").write_bytes(b"#!/bin/sh\n")
        (space / "tool").chmod(0o4755)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(space / "host.sock"))
            listener.listen(5)
            old = self._listeners.get("workspace")
            self._listeners["workspace"] = listener.dup()
            self._listeners["workspace"].setblocking(False)
        if old is not None:
            old.close()
        return space

    def data(self) -> dict[str, Path]:
        return {"sales.csv": OUTSIDE / "data.csv", "folder": OUTSIDE / "data"}

    async def invite(self, provider: Provider) -> None:
        """A neighbour: another session of the same build, with secrets of its own."""
        space = SPACE / "neighbour"
        space.mkdir(mode=0o777)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.neighbour_port = probe.getsockname()[1]
        self.neighbour = await provider.open(Spec(workspace=space))
        token = self.secrets["neighbour"]
        await self.neighbour.run("import resource")
        done = await self.neighbour.run(NEIGHBOUR.format(token=token, port=self.neighbour_port))
        if done.status != "ok":
            raise RuntimeError(f"the neighbour could not settle: {done.error or done.stderr}")

    async def breaches(self, seen: Seen) -> list[str]:
        """What the program got at; and everything is put back."""
        found = [f"secret {name}" for name, token in self.secrets.items() if token in seen.text]
        if self.word[::-1] in seen.text:
            found.append("word")
        found += [f"knock {name}" for name in self._knocks()]
        found += self._changes(seen.workspace)
        with suppress(subprocess.TimeoutExpired):
            self._victim.wait(SIGNAL_S if "victim" in seen.program else 0)
        if self._victim.poll() is not None:
            found.append(f"victim ended with {self._victim.returncode}")
            self._victim = self._new_victim()
        if seen.took_s > seen.limit_s + GRACE_S:
            found.append(f"overtime {seen.took_s:.1f} s")
        if any(len(outcome.stdout) + len(outcome.stderr) > 2 * seen.cap_bytes for outcome in seen.outcomes):
            found.append("flood")
        found += self._late(seen.workspace)
        found += await self._neighbours_news()
        return found

    def close(self) -> None:
        self._victim.kill()
        self._victim.wait()
        for listener in self._listeners.values():
            listener.close()
        ctypes.CDLL(None).shmctl(self._segment, 0, None)

    def _lay_files(self) -> None:
        for name in READABLE:
            _write(Path(name), f"root:{self.secrets['file']}:1\n")
        _write(OUTSIDE / "private.txt", self.secrets["file"], 0o600)
        with closing(sqlite3.connect(OUTSIDE / "app.db")) as database, database:
            database.execute("CREATE TABLE users (secret TEXT)")
            database.execute("INSERT INTO users VALUES (?)", [self.secrets["file"]])
        (OUTSIDE / "app.db").chmod(0o666)
        _write(OUTSIDE / "data.csv", AS_IT_WAS)
        _write(OUTSIDE / "data" / "more.csv", AS_IT_WAS)
        _write(OUTSIDE / "writable.txt", AS_IT_WAS)
        # A session without a root of its own would make these, before any program runs.
        _write(Path("/mnt/datasets/sales.csv"), "")
        Path("/mnt/datasets/folder").mkdir(exist_ok=True)

    def _listing(self) -> dict[str, tuple[int, int, bytes]]:
        found: dict[str, tuple[int, int, bytes]] = {}
        for top in ("/srv", "/home", "/opt", "/run", "/mnt", "/tmp", "/dev/shm"):
            for folder, folders, files in os.walk(top):
                # Where the programs of this suite live, and what the provider keeps.
                folders[:] = [
                    name
                    for name in folders
                    if f"{folder}/{name}" not in self._not_ours and not name.startswith("pinfold-versions.")
                ]
                for name in [*files, *folders]:
                    path = Path(folder, name)
                    with suppress(OSError):
                        status = path.lstat()
                        content = (
                            path.read_bytes() if stat.S_ISREG(status.st_mode) and status.st_size < 1 << 16 else b""
                        )
                        found[str(path)] = (status.st_mode, status.st_uid, content)
        return found

    def _changes(self, workspace: Path) -> list[str]:
        now = self._listing()
        found = [
            f"file {path}" for path in now.keys() | self._outside.keys() if now.get(path) != self._outside.get(path)
        ]
        for path in (Path(name.removeprefix("file ")) for name in found):
            _remove(path)
        if found:
            self._listeners_down()
            shutil.rmtree(OUTSIDE, ignore_errors=True)
            self._lay_files()
            self._listeners |= dict(self._listen_paths())
            self._outside = self._listing()
        found += [f"guarded {name}" for name in PROTECTED if not _is_file(workspace / name, AS_IT_WAS)]
        for path in workspace.rglob("*"):
            with suppress(OSError):
                mode = path.lstat().st_mode
                if mode & (stat.S_ISUID | stat.S_ISGID) and path.name != "tool":
                    found.append(f"set-id {path.name}")
                if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                    found.append(f"device {path.name}")
        if os.geteuid() == 0 and not _is_file(workspace / "tool", "#!/bin/sh\n"):
            found.append("tool")  # anyone else's gives nobody anything
        return found

    def _late(self, workspace: Path) -> list[str]:
        """The session is over; a program that is not is waiting for `go`."""
        if not (workspace / "waiting").exists():
            return []
        (workspace / "go").touch()
        end = time.monotonic() + LATE_S
        while time.monotonic() < end:
            if (workspace / "late").exists():
                return ["late"]
            time.sleep(0.02)
        return []

    async def _neighbours_news(self) -> list[str]:
        if self.neighbour is None:
            return []
        asked = "import select\n(open('private.txt').read() == token, child.poll(), [bool(s.accept()) for s in select.select([tcp, abstract, path], [], [], 0)[0]], libc.msgrcv(queue, ctypes.create_string_buffer(99), 90, 0, 0o4000))"
        outcome = await self.neighbour.run(asked)
        return [] if outcome.value == "(True, None, [], -1)" else [f"neighbour {outcome.value or outcome.error}"]

    def _listen(self) -> Generator[tuple[str, socket.socket]]:
        for name, family, kind, address in (
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\0pinfold-escape"),
            ("abstract datagrams", socket.AF_UNIX, socket.SOCK_DGRAM, "\0pinfold-escape-d"),
            ("vsock", socket.AF_VSOCK, socket.SOCK_STREAM, (socket.VMADDR_CID_ANY, VSOCK_PORT)),
        ):
            with suppress(OSError):
                yield name, _listening(family, kind, address)
        yield from self._listen_paths()

    def _listen_paths(self) -> Generator[tuple[str, socket.socket]]:
        for name, kind in (("host.sock", socket.SOCK_STREAM), ("datagram.sock", socket.SOCK_DGRAM)):
            path = OUTSIDE / name
            path.unlink(missing_ok=True)
            yield name, _listening(socket.AF_UNIX, kind, str(path))
            path.chmod(0o777)

    def _listeners_down(self) -> None:
        for name in ("host.sock", "datagram.sock"):
            self._listeners.pop(name).close()

    def _knocks(self) -> list[str]:
        ready, _, _ = select.select(list(self._listeners.values()), [], [], 0)
        found = [name for name, listener in self._listeners.items() if listener in ready]
        for listener in ready:
            with suppress(OSError):
                while True:
                    if listener.type == socket.SOCK_DGRAM:
                        listener.recv(100)
                    else:
                        listener.accept()[0].close()
        return found

    def _port(self, name: str) -> int:
        listener = self._listeners.get(name)
        return 0 if listener is None else listener.getsockname()[1]

    def _new_victim(self) -> subprocess.Popen[str]:
        secret = {"PATH": "/usr/bin", "VICTIM": self.secrets["argv"]}
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, self.secrets["argv"]], env=secret, stdout=subprocess.PIPE, text=True
        )
        assert victim.stdout is not None
        victim.stdout.readline()
        return victim

    def _share_memory(self) -> int:
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        segment = libc.shmget(SHM_KEY, 4096, 0o1666)
        place = ctypes.c_void_p(libc.shmat(segment, None, 0))
        ctypes.memmove(place, self.secrets["ipc"].encode(), len(self.secrets["ipc"]))
        return segment


@contextmanager
def laid(environment_secret: str, not_bait: Iterable[Path]) -> Generator[Scene]:
    scene = Scene(environment_secret, not_bait)
    try:
        yield scene
    finally:
        scene.close()


def _listening(family: int, kind: int, address: object) -> socket.socket:
    listener = socket.socket(family, kind)
    listener.setblocking(False)
    listener.bind(address)  # pyright: ignore[reportArgumentType]
    if kind == socket.SOCK_STREAM:
        listener.listen(20)
    return listener


def _write(path: Path, text: str, mode: int = 0o666) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    for item, bits in ((path, mode), (path.parent, 0o777), (path.parent.parent, 0o777)):
        with suppress(PermissionError):  # the cage's own places are open to all already
            item.chmod(bits)


def _is_file(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
