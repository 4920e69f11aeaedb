"""Starts the process that runs a model, or finds it: one per user and model, shared by all Pinfold processes.

`llama_server.py`, the program it runs, describes the locks.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import msgspec

from pinfold.events import RequestFailed, decode_json
from pinfold.model.local.files import file_size, hold_lock, is_held, make_private, try_lock
from pinfold.model.wire.failures import one_line
from pinfold.model.wire.http import Patience, Wire
from pinfold.model.wire.payload import as_count, as_object

PROGRAM = Path(__file__).with_name("llama_server.py")
START_S = 300.0
"""Long, since reading a large file from a cold disk is slow."""
ANSWER_S = 10.0
END_S = 10.0
_LOOK_AGAIN_S = 0.05
_ERROR = re.compile(r"^[\d.]+ E (?:llama_model_load: error loading model: |\w+: )?(.+)", re.MULTILINE)
_CHATTER = re.compile(r"[\d.]+ [A-Z] ")
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The model to run, and its options. Equal specs share one process."""

    model: Path
    alias: str
    context: int
    runtime: Path | None
    """Folder to import the runtime from; None for our own environment."""
    pooling: Literal["off", "as-told", "mean"] = "off"
    """Embeddings: none, pooled as the file says, or the mean of all tokens."""
    idle_s: float = 300.0
    """Idle time after which it frees the model's memory, until the next request."""
    linger_s: float = 10.0
    """How long it keeps running after its last user has left."""

    @property
    def key(self) -> str:
        found = self.model.stat()
        parts = [str(self.model.resolve()), found.st_size, found.st_mtime_ns, str(self.runtime), self.context]
        parts += [self.pooling, self.idle_s, self.linger_s]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """Address and properties of the running server."""

    pid: int
    url: str
    key: str
    context: int = 0
    """Size of the context in tokens, as llama.cpp reports it."""
    tells_tools: bool = False
    """True if the file's chat template describes tools to the model."""


class Host:
    """One user of the process. The process runs at least until `release`, or until our process ends."""

    def __init__(self, spec: Spec, state: Path, *, answer_s: float = ANSWER_S) -> None:
        """`state` is Pinfold's state folder. A process that does not answer within `answer_s` is replaced."""
        self._spec = spec
        self._answer_s = answer_s
        self._folder = state / "models" / spec.key
        self.log = state / "log" / f"model-{spec.key}.log"
        self._held: int | None = None

    async def ready(self) -> Served:
        """Return the server's address, starting the process if needed. Raises RequestFailed."""
        try:
            make_private(self._folder)
            make_private(self.log.parent)
            await self._hold()
            if served := await self._find_running():
                return served
            async with hold_lock(self._folder / "start.lock"):
                return await self._find_running() or await self._start()
        except OSError as error:
            words = f"{error.filename or self._folder} cannot be used: {error.strerror}"
            raise RequestFailed(words, retryable=False) from error

    def is_running(self) -> bool:
        return is_held(self._folder / "server.lock")

    def release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    async def _hold(self) -> None:
        if self._held is None:
            self._held = os.open(self._folder / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # A process about to end holds the lock exclusively until it has ended.
        while not try_lock(self._held, fcntl.LOCK_SH):
            await anyio.sleep(_LOOK_AGAIN_S)

    async def _find_running(self) -> Served | None:
        """Return the server that runs already, if any. Kill one that does not answer."""
        served = await self._wait_for_address()
        if served is None:
            return None
        try:
            return await self._ask_properties(served)
        except RequestFailed:
            await self._end(served.pid)
            return None

    async def _wait_for_address(self) -> Served | None:
        """Wait until the process has loaded and written its address; None if it ends before."""
        with anyio.move_on_after(START_S):
            while self.is_running():
                with suppress(OSError, msgspec.MsgspecError):
                    return decode_json((self._folder / "server.json").read_bytes(), Served)
                await anyio.sleep(_LOOK_AGAIN_S)
        return None

    async def _end(self, pid: int) -> None:
        # Its lock is still held, so the pid cannot have been reused.
        if self.is_running():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with anyio.move_on_after(END_S):
            while self.is_running():
                await anyio.sleep(_LOOK_AGAIN_S)

    async def _start(self) -> Served:
        began = file_size(self.log)
        await anyio.to_thread.run_sync(self._launch)
        if served := await self._wait_for_address():
            return await self._ask_properties(served)
        with self.log.open("rb") as log:
            log.seek(min(began, file_size(self.log)))
            why = _reason(log.read().decode("utf-8", "replace"))
        words = f"{self._spec.model} cannot be run: {why}; the full log is {self.log}"
        raise RequestFailed(words, retryable=False)

    async def _ask_properties(self, served: Served) -> Served:
        async with aclosing(Wire(served.url, patience=Patience(connect_s=self._answer_s), key=served.key)) as wire:
            told = as_object(await wire.ask("props", limit_s=self._answer_s))
        context = as_count(as_object(told.get("default_generation_settings")).get("n_ctx"))
        tells_tools = as_object(told.get("chat_template_caps")).get("supports_tools") is True
        return msgspec.structs.replace(served, context=context, tells_tools=tells_tools)

    def _launch(self) -> None:
        settings = {**asdict(self._spec), "folder": self._folder, "log": self.log, "threads": cores()}
        with self.log.open("ab") as log:
            done = subprocess.run(
                [sys.executable, "-I", PROGRAM, self._spec.alias],
                input=json.dumps(settings, default=str).encode(),
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
                start_new_session=True,  # Ctrl-C in our terminal must not reach it
                timeout=START_S,
                check=False,
            )
        if done.returncode:
            raise RequestFailed(f"{self._spec.alias} cannot be started; see {self.log}", retryable=False)


def _reason(said: str) -> str:
    """Return the first error in llama.cpp's log, else its last line."""
    if told := _ERROR.search(said):
        return one_line(told[1])
    last = next(filter(str.strip, reversed(said.splitlines())), "")
    if not last or _CHATTER.match(last):
        return "it was killed while it loaded; is there enough memory for it?"
    return one_line(last)


def cores() -> int:
    """Return the number of CPUs we may use, which in a container is less than the machine has."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        count = min(count, max(1, round(int(quota) / int(period))))
    return count


def _environment() -> dict[str, str]:
    """Return our environment without secrets, and with passive waits: spinning threads slow a busy machine tenfold."""
    given = {name: value for name, value in os.environ.items() if not name.upper().endswith(_SECRET)}
    return {**given, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
