"""Private folders, file locks that the kernel releases when their holder ends, and resumable downloads."""

from __future__ import annotations

import fcntl
import html
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit, urlunsplit

import anyio

from pinfold.events import PinfoldError

if TYPE_CHECKING:
    import httpx2


LOOK_AGAIN_S = 0.1


@asynccontextmanager
async def hold_lock(path: Path, while_waiting: Callable[[], object] = lambda: None) -> AsyncGenerator[int]:
    """Hold an exclusive lock among all processes; yield its file descriptor. Waits as long as another holder lives."""
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not try_lock(held, fcntl.LOCK_EX):
            while_waiting()
            await anyio.sleep(LOOK_AGAIN_S)
        yield held
    finally:
        os.close(held)


def try_lock(descriptor: int, kind: int) -> bool:
    """Take the lock if it is free, without waiting; return True on success."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """True if some process holds the lock exclusively. The test takes it shared for a moment."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def file_size(path: Path) -> int:
    """Return the size in bytes; 0 if the file does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


_NOT_SATISFIABLE = 416
_WORTH_ANOTHER_TRY = (408, 425, 429)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for a server, and how often to retry."""

    connect_s: float = 3.0
    silence_s: float = 30.0
    tries: int = 5
    """Failures in a row without a new byte before giving up."""
    pause_s: float = 0.5
    """Pause before the second try; doubled for each later one."""


class DownloadFailed(PinfoldError):
    """A file could not be fetched completely. The message says why, but not from where."""


@asynccontextmanager
async def client(patience: Patience, certificates: str | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    """Open a client with the environment's proxies and certificates; `certificates` names a file to trust instead."""
    import ssl

    import httpx2

    try:
        verify = ssl.create_default_context(cafile=certificates) if certificates else True
    except OSError as error:
        raise DownloadFailed(f"the certificates {certificates} cannot be read: {error.strerror}") from error
    timeout = httpx2.Timeout(patience.silence_s, connect=patience.connect_s)
    async with httpx2.AsyncClient(follow_redirects=True, timeout=timeout, verify=verify) as opened:
        yield opened


class _TryAgain(Exception): ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """The download of one file."""

    http: httpx2.AsyncClient
    url: str
    into: Path
    on_bytes: Callable[[], None]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    size: int | None = None
    """Expected size, if known: a file of another size is refused."""

    async def fetch(self, patience: Patience) -> None:
        """Fetch the rest of the file, with retries, until `into` holds all of it. Raises DownloadFailed."""
        import httpx2

        furthest, fruitless = file_size(self.into), 0
        while True:
            try:
                return await self._continue()
            except (httpx2.TransportError, _TryAgain) as error:
                why = words_of(error)
            except (httpx2.RequestError, httpx2.InvalidURL) as error:
                raise DownloadFailed(words_of(error)) from error
            fruitless = 0 if file_size(self.into) > furthest else fruitless + 1
            furthest = max(furthest, file_size(self.into))
            if fruitless >= patience.tries:
                raise DownloadFailed(why)
            await anyio.sleep(patience.pause_s * 2 ** max(0, fruitless - 1))

    async def _continue(self) -> None:
        have = file_size(self.into)
        if self.size is not None and have == self.size:
            return
        # With compression, a range would refer to the compressed bytes.
        asked = {**self.headers, "Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        async with self.http.stream("GET", self.url, headers=asked) as answer:
            if answer.status_code == _NOT_SATISFIABLE:
                self.into.unlink(missing_ok=True)
                raise _TryAgain("the server has less of the file than we do")
            if answer.status_code >= 500 or answer.status_code in _WORTH_ANOTHER_TRY:
                raise _TryAgain(f"it answered {answer.status_code}")
            if answer.status_code not in (200, 206):
                raise DownloadFailed(f"it answered {answer.status_code}")
            begin, whole = _place(answer)
            # A server without support for ranges starts at 0.
            if begin not in (0, have):
                raise DownloadFailed("it answered with another range than asked for")
            if self.size is not None and whole is not None and whole != self.size:
                raise DownloadFailed(f"its file has {whole:,} bytes, not {self.size:,}")
            with self.into.open("r+b" if have else "wb") as file:
                file.truncate(begin)  # drop anything after that
                file.seek(begin)
                async for chunk in answer.aiter_raw():
                    file.write(chunk)
                    file.flush()
                    self.on_bytes()
        if whole is not None and file_size(self.into) < whole:
            raise _TryAgain("the connection was closed early")


def _place(answer: httpx2.Response) -> tuple[int, int | None]:
    """Return where the answer's bytes begin in the file, and the file's size if the server sends it."""
    if answer.status_code == 206:
        told = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("content-range", ""))
        if told is None:
            raise DownloadFailed("it answered with a range and does not say which")
        return int(told[1]), None if told[2] == "*" else int(told[2])
    length = answer.headers.get("content-length", "")
    return 0, int(length) if length.isdigit() else None


def words_of(error: Exception) -> str:
    """Return the error's message; for network errors without one, words made from the class name."""
    return str(error).strip() or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()


_LINK = re.compile(r"""(?:\bhref|"url")\s*[=:]\s*["']?([^"'#>\s]+)""")
"""A link in a package index, which is HTML or JSON. Loose parsing is safe: files are checked by their hash."""


def index_of(environ: Mapping[str, str]) -> str:
    """Return the package index that uv or pip would use."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if given := environ.get(name, "").strip():
            # uv allows a name before the URL: `mirror=https://...`
            return given if given.startswith("http") else given.partition("=")[2] or given
    return "https://pypi.org/simple"


async def wheel_url(http: httpx2.AsyncClient, index: str, package: str, wheel: str) -> str:
    """Return the URL of this wheel of the package. Raises DownloadFailed."""
    import httpx2

    page = f"{index.rstrip('/')}/{package}/"
    try:
        answer = await http.get(page, headers={"Accept": "text/html, application/vnd.pypi.simple.v1+json;q=0.5"})
    except (httpx2.RequestError, httpx2.InvalidURL) as error:
        raise DownloadFailed(words_of(error)) from error
    if answer.status_code == 404:
        raise DownloadFailed(f"there is no package {package!r} any more")
    if answer.status_code != 200:
        raise DownloadFailed(f"it answered {answer.status_code}")
    base = str(answer.url) if answer.history else page
    for link in _LINK.findall(answer.text):
        url = urljoin(base, html.unescape(link))
        if urlsplit(url).path.rpartition("/")[2] == wheel:
            return url
    raise DownloadFailed(f"there is no {wheel} any more")


def without_secrets(url: str) -> str:
    """Return the URL without user and password, which the URLs of some mirrors contain."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
