"""What comes of a call: a result, as text for the model and as a value for code, or an error by who can fix it."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal, cast

from msgspec import Struct

from pinfold.events import Arrow, Json, PinfoldError, Sent

_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class ToolError(PinfoldError):
    """Base.

    ToolError
      BadTool       the author's: a function or a file that cannot be a tool, a name in the config that is none
      BadCall       raised by a tool: it cannot do what it was asked for; no fault of its own, unless it says so
      ToolFailed    shown to the model: unknown name, wrong arguments, or the tool's own failure
    """


class BadTool(ToolError):
    exit_code = 2


class _CallError(ToolError):
    def __init__(
        self,
        message: str,
        *,
        at_fault: bool = False,
        may_have_happened: bool = False,
        untrusted: bool = False,
        sent: tuple[Sent, ...] = (),
    ) -> None:
        super().__init__(message)
        self.at_fault = at_fault
        """The tool itself failed; it was not merely called wrongly."""
        self.may_have_happened = may_have_happened
        """It was given up while it ran."""
        self.untrusted = untrusted
        """The message may hold text that the user did not write."""
        self.sent = sent
        """What had left this machine by then."""


class BadCall(_CallError): ...


class ToolFailed(_CallError): ...


class Result(Struct, frozen=True, kw_only=True):
    """A tool may return one itself where text and value are not the same thing."""

    text: str
    """For the model; the caller limits its length."""
    value: Json = None
    """For a cell that called: what JSON can hold, with bytes and tables (`Arrow`) anywhere inside."""
    untrusted: bool = False
    """It may hold text that the user did not write."""
    sent: tuple[Sent, ...] = ()
    notices: tuple[str, ...] = ()
    """For the user."""
    outcome: Literal["ok", "error", "timeout"] = "ok"
    """Of what it ran: a command that failed has a result all the same."""


def as_result(returned: object) -> Result:
    """What a function returned, as text and as value."""
    match returned:
        case Result():
            return returned
        case str():
            return Result(text=returned, value=returned)
        case bytes() | bytearray():
            data = returned if isinstance(returned, Arrow) else bytes(returned)
            return Result(text=_describe_bytes(data), value=data)
        case None | bool() | int():
            return Result(text=json.dumps(returned), value=returned)
        case _:
            return _structured_result(returned)


def _describe_bytes(data: bytes) -> str:
    mime = next((mime for magic, mime in _PICTURES if data.startswith(magic)), "")
    return f"[{mime + ', ' if mime else ''}{len(data):,} bytes]"


def _structured_result(returned: object) -> Result:
    from pydantic_core import PydanticSerializationError

    try:
        value = _plain(returned)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_describe_bytes)
        text.encode()  # a lone surrogate has no place in JSON
    except (PydanticSerializationError, ValueError, RecursionError):
        text = repr(returned)
        return Result(text=text, value=text)
    return Result(text=text, value=value)


def _plain(value: Json) -> Json:
    """As JSON would have it, but for bytes, which stay what they are."""
    match value:
        case None | bool() | int() | float() | bytes() if type(value).__module__ in ("builtins", Arrow.__module__):
            return value
        case bytearray():
            return bytes(value)
        case dict():
            items = cast("dict[object, Json]", value).items()
            return {key if type(key) is str else _key(key): _plain(item) for key, item in items}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in cast("list[Json]", value)]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _ if hasattr(value, "model_dump") and not isinstance(value, type):
            return _plain(value.model_dump())
        case _:
            from pydantic_core import to_jsonable_python

            return to_jsonable_python(value, inf_nan_mode="constants")


def _key(key: object) -> str:
    from pydantic_core import to_jsonable_python

    return next(iter(to_jsonable_python({key: None})))
