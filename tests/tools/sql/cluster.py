"""A real PostgreSQL of the tests' own: Debian's packages, installed or unpacked beside, on loopback, for nobody else."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 60
OWNER = "boss"
"""The superuser of the cluster."""


_NOT_NEEDED = ("libllvm", "libz3", "libperl", "libpq5")


class NoPostgres(Exception):
    """Why there is none."""


@dataclass(frozen=True)
class Cluster:
    folder: Path
    bin: Path
    port: int
    password: str
    """Of the superuser, and of whoever is made with it."""

    @property
    def sockets(self) -> Path:
        return self.folder / "s"

    def url(self, database: str = "postgres", *, user: str = OWNER, password: str | None = None) -> str:
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def run(self, sql: str, database: str = "postgres") -> None:
        """A script of any number of statements."""
        done = subprocess.run(
            [self.bin / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-f", "-"],
            input=sql.encode(),
            capture_output=True,
            check=False,
            timeout=START_S,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.decode("utf-8", "replace"))

    def ask(self, sql: str, database: str = "postgres") -> str:
        """What psql says to one statement, bare."""
        done = subprocess.run(
            [self.bin / "psql", "-X", "-At", "-d", self.url(database), "-c", sql],
            capture_output=True,
            check=True,
            timeout=START_S,
        )
        return done.stdout.decode("utf-8").strip()


@contextmanager
def cluster(password: str) -> Generator[Cluster]:
    """Raises NoPostgres."""
    # Not the test's own folder: the server's user must be able to get there.
    folder = Path(tempfile.mkdtemp(prefix="pinfold-pg-"))
    user = "nobody" if os.geteuid() == 0 else None
    try:
        place, env = _programs(folder)
        folder.chmod(0o755)
        for name in ("d", "s"):
            (folder / name).mkdir(mode=0o700)
            if user:
                shutil.chown(folder / name, user)
        made = Cluster(folder=folder, bin=place, port=_free_port(), password=password)
        _make(made, user, env)
        with _running(made, user, env):
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path) -> tuple[Path, dict[str, str]]:
    """Where `postgres` is, and what it must be run with."""
    plain = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "HOME": str(folder)}
    there = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if there:
        return there[-1].parent, plain
    if not shutil.which("apt-get"):
        raise NoPostgres("no PostgreSQL is installed, and there is no apt-get to have it from")
    return _unpacked(folder), {**plain, "LD_LIBRARY_PATH": str(_libraries(folder))}


def _unpacked(folder: Path) -> Path:
    """Debian's package beside the system: nothing of the system changes."""
    version = _newest(folder)
    if version is None:
        # A slim image has no lists of packages.
        folder.chmod(0o755)
        for name in ("lists", "cache"):
            (folder / name / "partial").mkdir(parents=True)
        _apt(folder, "apt-get", "update")
        version = _newest(folder)
    if version is None:
        raise NoPostgres("no PostgreSQL is installed, and apt has none")
    wanted = (f"postgresql-{version}", f"postgresql-client-{version}", "libpq5", *_more(folder, version))
    for package in wanted:
        got = _apt(folder, "apt-get", "download", package)
        if got.returncode and package == wanted[0]:
            raise NoPostgres(f"{package} cannot be had: {got.stderr[-200:]}")
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", archive, folder / "root"], check=True)
        archive.unlink()
    return folder / "root" / "usr" / "lib" / "postgresql" / str(version) / "bin"


def _apt(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """With lists of our own, if there are any."""
    own: list[str] = []
    if (folder / "lists").is_dir():
        own = ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    return subprocess.run([command[0], *own, *command[1:]], cwd=folder, capture_output=True, text=True, check=False)


def _newest(folder: Path) -> int | None:
    found = _apt(folder, "apt-cache", "search", "--names-only", r"^postgresql-[0-9]+$")
    return max((int(line.split()[0].rpartition("-")[2]) for line in found.stdout.splitlines()), default=None)


def _more(folder: Path, version: int) -> list[str]:
    """Libraries it needs that are not here, as apt would install them; none of its compiler's."""
    package = f"postgresql-{version}"
    told = _apt(folder, "apt-get", "install", "--simulate", "--no-install-recommends", package)
    new = [line.split()[1] for line in told.stdout.splitlines() if line.startswith("Inst ")]
    return [name for name in new if name.startswith("lib") and not name.startswith(_NOT_NEEDED)]


def _libraries(folder: Path) -> Path:
    return next((folder / "root" / "usr" / "lib").glob("*-linux-gnu"), folder)


def _make(made: Cluster, user: str | None, env: dict[str, str]) -> None:
    secret = made.folder / "d" / "password"
    secret.write_text(made.password)
    if user:
        shutil.chown(secret, user)
    done = subprocess.run(
        [made.bin / "initdb", "-D", made.folder / "d" / "data", "-U", OWNER, "--pwfile", secret, "-A", "scram-sha-256",
         "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync"],
        capture_output=True,
        env=env,
        user=user,
        cwd="/",
        check=False,
        timeout=START_S,
    )  # fmt: skip
    if done.returncode:
        raise NoPostgres(f"initdb failed: {done.stderr.decode('utf-8', 'replace')[-500:]}")


@contextmanager
def _running(made: Cluster, user: str | None, env: dict[str, str]) -> Generator[None]:
    said = made.folder / "said"
    with said.open("wb") as out:
        server = subprocess.Popen(
            [made.bin / "postgres", "-D", made.folder / "d" / "data", "-k", made.sockets, "-p", str(made.port),
             "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=32MB", "-c", "jit=off",
             "-c", "log_statement=all"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, user=user, cwd="/",
        )  # fmt: skip
    try:
        _until_it_answers(made, server, said)
        yield
    finally:
        server.send_signal(signal.SIGQUIT)
        try:
            server.wait(timeout=START_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _until_it_answers(made: Cluster, server: subprocess.Popen[bytes], said: Path) -> None:
    for _ in range(START_S * 10):
        answered = subprocess.run([made.bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(made.port)], check=False)
        if answered.returncode == 0:
            return
        try:
            server.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        raise NoPostgres(f"postgres ended: {said.read_text(errors='replace')[-500:]}")
    raise NoPostgres(f"postgres did not answer in {START_S} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
