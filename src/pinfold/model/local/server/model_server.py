"""From what a user names to a model that is served, and to the socket it is served at."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import anyio.to_thread

from pinfold.model.errors import CannotServe, NotPulled
from pinfold.model.local.catalogue import CATALOGUE, weights_named
from pinfold.model.local.model_host import Host, Spec
from pinfold.model.local.runtime import runtime
from pinfold.model.local.weights import weights_at
from pinfold.text import join_names

if TYPE_CHECKING:
    from pinfold.model.local.server.endpoint import Backend

CONTEXT = 8192
"""More must be asked for: it takes memory."""
_STOP_S = 3
_KEEP_ALIVE_S = 75
"""Longer than clients keep a connection: 5 s to 60 s. Who uses one as the server closes it gets no answer."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What is to be served, and where."""

    what: str
    """A GGUF file, a Transformers folder, or a name of the catalogue."""
    host: str = "127.0.0.1"
    port: int = 8000
    """0 for any that is free."""
    key: str | None = None
    context: int | None = None
    """In tokens, for a GGUF file."""


async def serve(
    serving: ServeOptions,
    *,
    folder: Path,
    state: Path,
    uv: Path | None,
    notice: Callable[[str], None],
    on_ready: Callable[[str, str], None],
) -> None:
    """Until a signal ends it. `on_ready` gets the address and the model's name. Raises ModelError or RequestFailed."""
    for module in ("starlette", "uvicorn"):
        if find_spec(module) is None:
            raise CannotServe(f"serving needs {module}; install it: pinfold extras add server")
    if serving.host not in _LOOPBACK and not serving.key:
        raise CannotServe(f"at {serving.host} everyone who can reach this machine could use the model: give it a --key")
    with bind_socket(serving.host, serving.port) as opened:
        backend = await _backend(serving, folder, state, uv, notice)
        try:
            await _run(backend, serving, opened, on_ready)
        finally:
            await backend.aclose()


def bind_socket(host: str, port: int) -> socket.socket:
    """Raises CannotServe."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotServe(f"port {port} is taken; name another with --port, or 0 for any that is free") from error
        why = error.strerror or str(error)
        raise CannotServe(f"{host}:{port} cannot be listened at: {why}; name another --host or --port") from error


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
            raise CannotServe("--context is for GGUF files; a Transformers folder says itself how much it reads")
        notice(f"loading {path}")
        return await anyio.to_thread.run_sync(TransformersBackend.load, path)
    from pinfold.model.local.server.llama import LlamaBackend

    facts = facts_of(path)
    most = facts.number(".context_length") or CONTEXT
    pooling = "as-told" if facts.number(".pooling_type") else "mean"
    spec = Spec(
        model=path,
        alias=name,
        context=serving.context or min(CONTEXT, most),
        runtime=await runtime(folder / "runtimes", uv, notice),
        pooling=pooling,
        linger_s=0.0,
    )
    notice(f"loading {path}")
    host = Host(spec, state)
    try:
        return LlamaBackend(name, host, await host.ready(), weights=path.stem)
    except BaseException:
        host.release()
        raise


def _find_model(what: str, models: Path) -> tuple[Path, str]:
    """The file or folder that is meant, and what to call the model. Raises ModelError."""
    path = Path(what)
    if what in CATALOGUE and not path.exists():
        weights = weights_named(what)
        there = weights_at(weights, models)
        if there is None:
            raise NotPulled(
                f"{what} is not on this machine yet: `pinfold model pull {what}` fetches it ({weights.megabytes})"
            )
        return there, what
    if not path.exists():
        raise CannotServe(
            f"there is no {what}; name a GGUF file, a Transformers folder, or one of {join_names(list(CATALOGUE), 9)}"
        )
    if path.is_file():
        return path.resolve(), path.stem
    if (path / "config.json").is_file():
        return path, path.resolve().name
    inside = sorted(path.glob("*.gguf"))
    if len(inside) == 1:
        return inside[0].resolve(), inside[0].stem
    if inside:
        raise CannotServe(f"{what} holds {len(inside)} GGUF files; name one of them, such as {inside[0]}")
    raise CannotServe(f"{what} is no model: a Transformers folder has a config.json")


_MAGIC = b"GGUF"
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9
_MOST_FACTS = 1000
_MOST_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file says of its model, up to its vocabulary."""

    values: dict[str, str | int | float] = field(default_factory=dict[str, str | int | float])

    def number(self, ending: str) -> int | None:
        """The first number whose name ends so: names begin with the kind of the model."""
        found = (value for name, value in self.values.items() if name.endswith(ending))
        return next((value for value in found if isinstance(value, int)), None)


def facts_of(path: Path) -> Facts:
    """Raises CannotServe for what is no GGUF file."""
    try:
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise CannotServe(f"{path} is not a GGUF file; name one, or a folder with a config.json")
            return _read(file)
    except OSError as error:
        raise CannotServe(f"{path} cannot be read: {error.strerror}") from error
    except (struct.error, ValueError, KeyError) as error:
        raise CannotServe(f"{path} is a broken GGUF file; fetch it again") from error


def _read(file: BinaryIO) -> Facts:
    _number(file, "<I")  # the version
    _number(file, "<Q")  # how many tensors
    facts = Facts()
    for _ in range(min(int(_number(file, "<Q")), _MOST_FACTS)):
        name = _text(file)
        if name.startswith("tokenizer."):  # long lists, and nothing for us behind them
            break
        value = _value(file, int(_number(file, "<I")))
        if value is not None:
            facts.values[name] = value
    return facts


def _value(file: BinaryIO, kind: int) -> str | int | float | None:
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        inner, count = int(_number(file, "<I")), int(_number(file, "<Q"))
        if count > _MOST_TEXT:
            raise ValueError("a list that is too long")
        for _ in range(count):
            _value(file, inner)
        return None
    return _number(file, _NUMBERS[kind])


def _text(file: BinaryIO) -> str:
    length = int(_number(file, "<Q"))
    if length > _MOST_TEXT:
        raise ValueError("a text that is too long")
    return file.read(length).decode("utf-8", "replace")


def _number(file: BinaryIO, form: str) -> int | float:
    (value,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return value
