"""The built-in models. Fetches the weights, installs the runtime and starts the model's process on demand.

The runtime is a wheel, either in our own environment or in a folder installed once per user. Only wheels are installed,
and only those whose hashes are listed in `xllamacpp.txt`. Only the model's own process imports it.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import msgspec

from pinfold.events import Reply, Request, RequestFailed, Thought, Usage
from pinfold.model.errors import RuntimeMissing
from pinfold.model.layers import Layer, Pieces
from pinfold.model.local.files import hold_lock, make_private
from pinfold.model.local.model_host import Host, Served, Spec
from pinfold.model.local.weights import Pulling, pull, weights_at, weights_named
from pinfold.model.wire.http import Patience
from pinfold.model.wire.openai import OpenAIModel
from pinfold.text import first_line

REQUIREMENTS = Path(__file__).with_name("xllamacpp.txt")
VERSION = REQUIREMENTS.read_text(encoding="utf-8").partition("==")[2].split()[0]
LIMIT_S = 900.0
_UNFINISHED = ".new-"
# Variables that would make uv use another index or environment, or build from source.
_MISLEADING = (
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_CONSTRAINT",
    "UV_NO_BINARY",
    "UV_NO_BINARY_PACKAGE",
    "UV_OVERRIDE",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "VIRTUAL_ENV",
)


def place(folder: Path) -> Path:
    """Return the runtime's folder, which may not exist yet. Its name holds version, machine and build of Python."""
    kind = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return folder / f"xllamacpp-{VERSION}-{os.uname().machine}{kind}"


async def runtime(folder: Path, uv: Path | None, notice: Callable[[str], None]) -> Path | None:
    """Return the folder to import the runtime from, installed if missing; None if our environment has it.

    Raises RuntimeMissing.
    """
    if find_spec("xllamacpp") is not None:  # the extra `local` is installed
        return None
    if (ready := place(folder)).exists():
        return ready
    if uv is None:
        raise RuntimeMissing("llama.cpp, which runs local models, is missing; install it: pinfold extras add local")
    try:
        make_private(folder)
        async with hold_lock(folder / ".lock") as held:
            if not ready.exists():
                notice("fetching llama.cpp (35 MB), once")
                await _install(uv, ready, held)
    except OSError as error:
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise RuntimeMissing(f"{error.filename or folder} cannot be used: {why}") from error
    return ready


async def _install(uv: Path, ready: Path, held: int) -> None:
    for stale in ready.parent.glob(f"{_UNFINISHED}*"):  # left by a killed process, since we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    beside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=ready.parent))
    try:
        wheels_only = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirements", REQUIREMENTS]
        into = ["--python", sys.executable, "--target", beside / "site"]
        done = await _run([uv, "pip", "install", "--quiet", "--no-config", *wheels_only, *into], held)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").replace("error:", "").strip()
            why = first_line(" ".join(said.split()), 300)
            raise RuntimeMissing(f"llama.cpp could not be installed: {why}; try: pinfold extras add local")
        (beside / "site").rename(ready)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


async def _run(argv: list[str | Path], held: int) -> CompletedProcess[bytes]:
    """Run a command that inherits the lock, so that it stays held until the command ends even if we are killed."""
    try:
        with anyio.fail_after(LIMIT_S):
            return await anyio.run_process(
                [str(word) for word in argv],
                check=False,
                env=_environment(),
                cwd="/",  # no project's settings apply
                pass_fds=[held],
                start_new_session=True,
            )
    except TimeoutError as error:
        raise RuntimeMissing(f"{argv[0]} did not end within {LIMIT_S:g} s; try again") from error


def _environment() -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    given["NO_COLOR"] = "1"
    if "PIP_CERT" in given:
        given.setdefault("SSL_CERT_FILE", given["PIP_CERT"])
    if "PIP_INDEX_URL" in given and "UV_INDEX_URL" not in given:
        given.setdefault("UV_DEFAULT_INDEX", given["PIP_INDEX_URL"])
    return given


_MEASURED = 8
"""Minimum number of tokens for measuring a speed."""
_PATIENCE = Patience(connect_s=5, first_s=900, idle_s=300)
"""Long, since a small, busy machine reads only ten tokens a second."""


@dataclass(kw_only=True, eq=False)
class BuiltinModel:
    """`builtin` or another model of the catalogue. It has no native tool calls: they are parsed from its text."""

    name: str = "builtin"
    folder: Path
    """Pinfold's data folder."""
    state: Path
    """Pinfold's state folder, whose content may be lost."""
    uv: Path | None
    """Installs the runtime if it is missing."""
    notice: Callable[[str], None]
    """Called with messages for the user, such as the start of a long step."""
    linger_s: float = 10.0

    def __post_init__(self) -> None:
        self._weights = weights_named(self.name)
        self._host: Host | None = None
        self._client: OpenAIModel | None = None
        self._alone = anyio.Lock()

    @property
    def context(self) -> int:
        """Size of the context it runs with, in tokens."""
        return (self._client and self._client.context) or self._weights.context

    async def stream(self, request: Request) -> AsyncGenerator[str | Thought | Reply]:
        """Yield pieces as they arrive, then the whole reply. Raises RequestFailed, or ModelError for missing parts."""
        client = await self.warm()
        began, first = time.monotonic(), None
        try:
            async with aclosing(client.stream(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        news = self._describe_speed(piece.usage, (first or began) - began, time.monotonic() - began)
                        yield msgspec.structs.replace(piece, cost=0.0, notices=(*piece.notices, *news))
                    else:
                        first = first or time.monotonic()
                        yield piece
        except RequestFailed as failure:
            if self._host is None or self._host.is_running():
                raise
            await self._forget()
            words = f"the process that runs {self.name} ended; the next request starts it again"
            raise RequestFailed(words) from failure

    def _describe_speed(self, usage: Usage, reading_s: float, took_s: float) -> tuple[str, ...]:
        """Return, once per user, a notice of the model's measured speed and what to expect of it."""
        fresh, written = usage.input_tokens - usage.cached_tokens, usage.output_tokens
        if min(fresh, written) < _MEASURED or not 0 < reading_s < took_s:
            return ()
        try:
            (self.state / "told-builtin").touch(exist_ok=False)
        except OSError:
            return ()
        pace = f"reads about {fresh / reading_s:,.0f} and writes about {written / (took_s - reading_s):,.0f}"
        says = (
            f"{self.name} {pace} tokens a second on this machine, as just measured. It is good for short questions "
            "about tables and files, and often wrong: read the code before you rely on a figure. For longer work use a larger "
            "model: `pinfold model list` shows what you can choose."
        )
        return (says,)

    async def aclose(self) -> None:
        await self._forget()
        if self._host is not None:
            self._host.release()
            self._host = None

    async def warm(self) -> OpenAIModel:
        """Start or find the model's process; return a client. Raises RequestFailed, or ModelError for missing parts."""
        async with self._alone:
            if self._host is not None and not self._host.is_running():
                await self._forget()
            if self._client is None:
                self._host = self._host or await self._make_host()
                self._client = self._make_client(await self._host.ready())
            return self._client

    async def _make_host(self) -> Host:
        folder, weights = self.folder / "models", self._weights
        path = weights_at(weights, folder)
        if path is None:
            self.notice(f"fetching {weights.title} ({weights.megabytes}), once")
            path = await pull(weights, folder, _tell_quarters(self.notice))
        found = await runtime(self.folder / "runtimes", self.uv, self.notice)
        spec = Spec(model=path, alias=self.name, context=weights.context, runtime=found, linger_s=self.linger_s)
        return Host(spec, self.state)

    def _make_client(self, served: Served) -> OpenAIModel:
        return OpenAIModel(
            name=self.name,
            base_url=f"{served.url}/v1",
            model=self.name,
            key=served.key,
            patience=_PATIENCE,
            takes_tools=False,
            context=served.context,
        )

    async def _forget(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class SeededLayer(Layer):
    """Makes a user's seed give the same reply again, by turning off llama.cpp's prompt cache.

    Cached results were computed in other batches and differ slightly, enough to change the words.
    """

    async def stream(self, request: Request) -> Pieces:
        if request.settings.get("seed") is not None:
            request = msgspec.structs.replace(request, settings={"cache_prompt": False, **request.settings})
        async with self.pieces(request) as pieces:
            async for piece in pieces:
                yield piece


def _tell_quarters(notice: Callable[[str], None]) -> Callable[[Pulling], None]:
    """Return a progress callback that reports each quarter of a pull."""
    told = 0

    def tell(pulling: Pulling) -> None:
        nonlocal told
        quarter = 4 * pulling.done // pulling.total if pulling.total else 0
        if quarter > told:
            told = quarter
            notice(f"fetched {25 * quarter} %")

    return tell
