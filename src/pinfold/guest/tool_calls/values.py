"""What goes out with a call and what comes back: JSON, with bytes and tables beside it."""

from __future__ import annotations

from json import JSONEncoder, loads

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

    from ..frames import Header


class ToolError(Exception):
    """A call did not give a result; the text says why."""

    __module__ = "builtins"  # a traceback then says its plain name


class ToolRefused(ToolError):
    """It was not run: policy or the user said no, or it could not even be asked for."""

    __module__ = "builtins"


class ToolFailed(ToolError):
    """It was run, and failed."""

    __module__ = "builtins"


def _plain(value: Any) -> object:
    """What JSON has no form for and everybody would write in the same way."""
    if isinstance(value, bytes | bytearray):
        from base64 import b64encode

        return b64encode(value).decode()
    for name in ("__fspath__", "isoformat", "tolist"):  # paths, times, and whatever numpy has
        as_plain = getattr(value, name, None)
        if as_plain is not None and not isinstance(value, type):
            return as_plain()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_encode = JSONEncoder(allow_nan=False, default=_plain).encode


def encode_args(args: dict[str, object]) -> bytes:
    return _encode(args).encode()


def decode_answer(header: Header, body: bytes) -> Any:
    """The result, or its exception."""
    beside: Any = header.get("beside")
    if beside is None:
        told = loads(body.decode())
        if header["ok"]:
            return told
        raise (ToolRefused if told["refused"] else ToolFailed)(told["reason"])
    at = int(str(header["json"]))
    value = loads(body[:at])
    for path, kind, size in beside:
        data = body[at : at + size]
        at += size
        value = _place_at(value, path, _table(data) if kind == "arrow" else data)
    return value


def _place_at(value: Any, path: list[Any], item: object) -> Any:
    if not path:
        return item
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = item
    return value


def _table(data: bytes) -> object:
    from importlib import import_module

    try:
        ipc: Any = import_module("pyarrow.ipc")
    except ImportError:
        raise ToolFailed("the result is a table, and pyarrow is not installed here") from None
    return ipc.open_stream(data).read_all()
