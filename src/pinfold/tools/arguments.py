"""What a tool takes, read from a function's signature and docstring."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, Union, cast, get_type_hints

from msgspec import Struct, field

from pinfold.tools.errors import BadTool

_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SCALARS = (str, int, float, bool)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
JSON_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
}


class Argument(Struct, frozen=True, kw_only=True):
    name: str
    hint: Any = Any
    """A type, as an annotation has it; or the name of one that is not there yet."""
    default: Any = REQUIRED
    description: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def takes_none(self) -> bool:
        hint = bare(self.hint)
        return hint in (Any, None, type(None), object) or type(None) in members(hint)

    @property
    def takes_text(self) -> bool:
        """Whether a text is a good value as it stands."""
        hint = bare(self.hint)
        plain = [bare(member) for member in members(hint)] or [hint]
        return any(
            member in (str, Any, object) or typing.get_origin(member) is Literal or isinstance(member, str)
            for member in plain
        )

    @property
    def takes_structure(self) -> bool:
        """Whether it wants a list or an object, and no text."""
        return not self.takes_text and bare(self.hint) not in _SCALARS


class Described(Struct, frozen=True):
    text: str
    """Without the sections on parameters, results and errors."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def describe_function(function: Callable[..., object]) -> Described:
    return read_docstring(inspect.getdoc(function) or "")


def read_docstring(text: str) -> Described:
    """Google, NumPy and reST style."""
    if "\n" not in text:
        return Described(text)
    from docstring_parser import ParseError, parse

    try:
        found = parse(text)
    except ParseError:
        return Described(text.strip())
    parameters = {one.arg_name.lstrip("*"): " ".join((one.description or "").split()) for one in found.params}
    return Described((found.description or "").strip(), parameters)


def read_signature(function: Callable[..., Any], title: str, said: Described) -> tuple[Argument, ...]:
    """What `function` takes by name, or BadTool with what to change."""
    hints = _hints(function, title)
    found: list[Argument] = []
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind not in _NAMED_KINDS:
            raise BadTool(
                f"{title} cannot be a tool: parameter {name!r} has no name to pass it by; name each one: `{name}: str`"
            )
        if parameter.annotation is parameter.empty:
            raise BadTool(
                f"{title} cannot be a tool: parameter {name!r} has no type; write `{name}: str`, or what it is"
            )
        hint = hints.get(name, parameter.annotation)
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        text = _annotated_text(hint) or said.parameters.get(name, "")
        found.append(Argument(name=name, hint=hint, default=default, description=text))
    return tuple(found)


def read_result(function: Callable[..., Any], title: str) -> Any:
    """The type it says it returns; Any where it says nothing."""
    return _hints(function, title).get("return", Any)


def _hints(function: Callable[..., Any], title: str) -> Mapping[str, Any]:
    plain: Any = function
    while isinstance(plain, functools.partial):
        plain = cast("functools.partial[Any]", plain).func
    if not inspect.isroutine(plain):
        plain = type(plain).__call__
    try:
        return get_type_hints(plain, include_extras=True)
    except NameError:  # a type that is made further down: it is there when the tool is used
        return {}
    except (SyntaxError, TypeError, AttributeError) as error:
        raise BadTool(f"{title} cannot be a tool: its types cannot be read: {error}") from error


def _annotated_text(hint: Any) -> str:
    if typing.get_origin(hint) is not Annotated:
        return ""
    for note in hint.__metadata__:
        text = note if isinstance(note, str) else getattr(note, "description", None)
        if isinstance(text, str):
            return text
    return ""


def bare(hint: Any) -> Any:
    return bare(hint.__origin__) if typing.get_origin(hint) is Annotated else hint


def members(hint: Any) -> tuple[Any, ...]:
    """Of a union."""
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else ()
