"""Finds the model a user names, loads it and serves it on a socket. llama.cpp runs GGUF files."""

from __future__ import annotations

import errno
import math
import re
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from pinfold.events import BadEvent, ContextTooLong, Json, RequestFailed
from pinfold.model.errors import CannotServe, NotPulled
from pinfold.model.local.builtin import runtime
from pinfold.model.local.model_host import Host, Served, Spec
from pinfold.model.local.server.openai_format import Body, Chunk, Refusal
from pinfold.model.local.weights import CATALOGUE, weights_at, weights_named
from pinfold.model.names import ignores_declared_tools, is_loopback
from pinfold.model.wire.chat_stream import DONE, events
from pinfold.model.wire.failures import Refused
from pinfold.model.wire.http import Answer, Patience, Wire
from pinfold.model.wire.payload import as_object, parse_payload
from pinfold.text import join_names

if TYPE_CHECKING:
    from pinfold.model.local.server.endpoint import Backend

CONTEXT = 8192
"""Default context; a larger one takes more memory and must be requested."""
_STOP_S = 3
_KEEP_ALIVE_S = 75
"""Longer than clients keep a connection (5 to 60 s): a request on a connection that the server closes is lost."""
_HEADER_BYTES = 24
_HEAD_BYTES = 1 << 20
_DAY_S = 86_400.0
_PATIENCE = Patience(connect_s=5.0, first_s=_DAY_S, idle_s=_DAY_S)
"""llama.cpp sends nothing while it reads a long prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The model to serve, and its address."""

    what: str
    """A GGUF file, a Transformers folder, or a name from the catalogue."""
    host: str = "127.0.0.1"
    port: int = 8000
    """0 for any free port."""
    key: str | None = None
    context: int | None = None
    """Context in tokens, only for a GGUF file."""


async def serve(
    serving: ServeOptions,
    *,
    folder: Path,
    state: Path,
    uv: Path | None,
    notice: Callable[[str], None],
    on_ready: Callable[[str, str], None],
) -> None:
    """Serve until a signal arrives. Calls `on_ready(address, model)`. Raises ModelError or RequestFailed."""
    if not is_loopback(serving.host) and not serving.key:
        raise CannotServe(f"everyone who can reach {serving.host} could use the model; give it a --key")
    with bind_socket(serving.host, serving.port) as opened:
        async with aclosing(await _backend(serving, folder, state, uv, notice)) as backend:
            await _run(backend, serving, opened, on_ready)


def bind_socket(host: str, port: int) -> socket.socket:
    """Listen on the address. Raises CannotServe."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotServe(f"port {port} is taken; name another with --port, or 0 for any that is free") from error
        why = error.strerror or str(error)
        raise CannotServe(f"cannot listen on {host}:{port}: {why}; name another --host or --port") from error


async def _run(
    backend: Backend, serving: ServeOptions, opened: socket.socket, on_ready: Callable[[str, str], None]
) -> None:
    import uvicorn

    from pinfold.model.local.server.endpoint import endpoint

    config = uvicorn.Config(
        endpoint(backend, serving.key),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_STOP_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    host = f"[{serving.host}]" if ":" in serving.host else serving.host
    on_ready(f"http://{host}:{opened.getsockname()[1]}/v1", backend.name)
    await uvicorn.Server(config).serve(sockets=[opened])


async def _backend(
    serving: ServeOptions, folder: Path, state: Path, uv: Path | None, notice: Callable[[str], None]
) -> Backend:
    path, name = _find_model(serving.what, folder / "models")
    if path.is_dir():
        from pinfold.model.local.server.transformers_backend import TransformersBackend

        if serving.context:
            raise CannotServe("--context is for GGUF files; a Transformers folder has its own")
        notice(f"loading {path}")
        return await anyio.to_thread.run_sync(TransformersBackend.load, path)
    head = read_head(path)
    spec = Spec(
        model=path,
        alias=name,
        context=serving.context or min(CONTEXT, number_in(head, "context_length") or CONTEXT),
        runtime=await runtime(folder / "runtimes", uv, notice),
        pooling="as-told" if number_in(head, "pooling_type") else "mean",
        linger_s=0.0,
    )
    notice(f"loading {path}")
    with ExitStack() as stack:
        stack.callback((host := Host(spec, state)).release)
        backend = LlamaBackend(name, host, await host.ready(), weights=path.stem)
        stack.pop_all()
    return backend


def _find_model(what: str, models: Path) -> tuple[Path, str]:
    """Return the file or folder the user named, and a name for the model. Raises ModelError."""
    path = Path(what)
    if what in CATALOGUE and not path.exists():
        weights = weights_named(what)
        there = weights_at(weights, models)
        if there is None:
            size = weights.megabytes
            raise NotPulled(f"{what} is not on this machine yet: `pinfold model pull {what}` fetches it ({size})")
        return there, what
    if not path.exists():
        names = join_names(list(CATALOGUE), 9)
        raise CannotServe(f"there is no {what}; name a GGUF file, a Transformers folder, or one of {names}")
    if path.is_file():
        return path.resolve(), path.stem
    if (path / "config.json").is_file():
        return path, path.resolve().name
    inside = sorted(path.glob("*.gguf"))
    if len(inside) == 1:
        return inside[0].resolve(), inside[0].stem
    if inside:
        raise CannotServe(f"{what} holds {len(inside)} GGUF files; name one of them, such as {inside[0]}")
    raise CannotServe(f"{what} is not a model: a Transformers folder has a config.json")


def read_head(path: Path) -> bytes:
    """Return the start of a GGUF file, which holds its metadata. Raises CannotServe."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise CannotServe(f"{path} cannot be read: {error.strerror}") from error
    if not head.startswith(b"GGUF"):
        raise CannotServe(f"{path} is not a GGUF file; name one, or a folder with a config.json")
    if len(head) < _HEADER_BYTES:
        raise CannotServe(f"{path} is a broken GGUF file; fetch it again")
    return head


def number_in(head: bytes, name: str) -> int | None:
    """Return a uint32, int32 or uint64 from the metadata, by its key without the model's architecture in front."""
    found = re.search(rb"\.%b(?:[\4\5]\0{3}(.{4})|\n\0{3}(.{8}))" % name.encode(), head, re.DOTALL)
    return int.from_bytes(found[1] or found[2], "little") if found else None


class LlamaBackend:
    """Backend for a GGUF file: llama.cpp in its own process."""

    def __init__(self, name: str, host: Host, served: Served, *, weights: str) -> None:
        """`weights` is the name of the file, which may differ from the served `name`."""
        self.name = name
        self.context: int | None = served.context or None
        self.tells_tools = served.tells_tools and not ignores_declared_tools(weights)
        self._host = host
        self._wire = _connect(served)

    async def chunks(self, body: Body) -> AsyncGenerator[Chunk]:
        async with (
            self._request(_path(body), {**body, "stream": True}) as answer,
            aclosing(events(answer, lambda: False, tail_s=math.inf)) as chunks,
        ):
            async for chunk in chunks:
                if chunk != DONE:
                    yield chunk

    async def answer(self, body: Body) -> Chunk:
        return await self._ask(_path(body), body)

    async def embed(self, body: Body) -> Json:
        return {**await self._ask("embeddings", body), "model": self.name}

    async def aclose(self) -> None:
        await self._wire.aclose()
        self._host.release()

    async def _ask(self, path: str, body: Body) -> Chunk:
        async with self._request(path, body) as answer:
            try:
                return as_object(parse_payload((await answer.whole()).decode()))
            except (BadEvent, UnicodeError) as error:
                raise Refusal(f"llama.cpp did not answer with JSON: {error}", status=502) from error

    @asynccontextmanager
    async def _request(self, path: str, body: Body) -> AsyncGenerator[Answer]:
        """Open a successful answer, restarting llama.cpp if its process has ended. Raises Refusal."""
        if not self._host.is_running():
            await self._wire.aclose()
            self._wire = _connect(await self._host.ready())
        # A seed must give the same reply again; see builtin.SeededLayer.
        repeats = {"cache_prompt": False} if body.get("seed") is not None else {}
        try:
            async with self._wire.post(f"v1/{path}", {**repeats, **body, "model": self.name}) as answer:
                yield answer
        except ContextTooLong as error:
            raise Refusal(str(error), code="context_length_exceeded") from error
        except Refused as error:
            raise Refusal(error.words, status=error.status or 502) from error
        except RequestFailed as error:
            raise Refusal(f"llama.cpp failed: {error}", status=502) from error


def _connect(served: Served) -> Wire:
    return Wire(served.url, patience=_PATIENCE, key=served.key)


def _path(body: Body) -> str:
    return "completions" if "prompt" in body else "chat/completions"
