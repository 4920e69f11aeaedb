"""The outcome of a call: a result, with text for the model and a value for code, or an error by who can fix it."""

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
    """Base class.

    ToolError
      BadTool       for the author: a function or file that cannot be a tool, or an unknown name in the configuration
      BadCall       raised by a tool that cannot do what was asked; not a failure of the tool unless `at_fault`
      ToolFailed    shown to the model: unknown name, wrong arguments, or a failure of the tool
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
        """True if the tool itself failed, and was not just called wrongly."""
        self.may_have_happened = may_have_happened
        """True if the call was abandoned while it ran, so that its effect is unknown."""
        self.untrusted = untrusted
        """The message may hold text that the user did not write."""
        self.sent = sent
        """Data sent from this machine before the failure."""


class BadCall(_CallError): ...


class ToolFailed(_CallError): ...


class Result(Struct, frozen=True, kw_only=True):
    """The result of a call. A tool may return one itself if its text differs from its value."""

    text: str
    """For the model; the caller limits its length."""
    value: Json = None
    """For the calling cell: JSON, with bytes and tables (`Arrow`) anywhere inside."""
    untrusted: bool = False
    """True if it may hold text that the user did not write."""
    sent: tuple[Sent, ...] = ()
    notices: tuple[str, ...] = ()
    """Messages for the user."""
    outcome: Literal["ok", "error", "timeout"] = "ok"
    """Outcome of a command it ran: a failed command also has a result."""


def as_result(returned: object) -> Result:
    """Convert what a function returned to a Result."""
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
        text.encode()  # raises for a lone surrogate, which JSON cannot hold
    except (PydanticSerializationError, ValueError, RecursionError):
        text = repr(returned)
        return Result(text=text, value=text)
    return Result(text=text, value=value)


def _plain(value: Json) -> Json:
    """Convert to JSON values, but keep bytes as they are."""
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
