"""Types in few tokens: `'open'|'closed'`, `list[{name: str, size?: int}]`. Not Python."""

from __future__ import annotations

from pinfold.text import printable_line
from pinfold.tools.stubs.forms import Form, Parameter
from pinfold.tools.stubs.shapes import (
    ANY,
    NONE,
    Choice,
    DictOf,
    Either,
    Field,
    ListOf,
    Plain,
    Record,
    Records,
    Table,
    TupleOf,
    Type,
)

VALUES = 12
FIELDS = 8
DEPTH = 2
"""Objects inside objects that are spelled out."""
TYPE_CHARS = 240
TYPES = 120
"""Written into one text; more would not fit."""
CALL_CHARS = 400


def short_call(form: Form, name: str) -> str:
    """`name(owner: str, state: 'open'|'closed' = 'open', page?: int) -> list`. When it grows long, optional ones lose
    their types."""
    parts: list[str] = []
    chars = 0
    for parameter in form.parameters:
        part = _part(parameter, form.records)
        if not parameter.is_required and chars + len(part) > CALL_CHARS:
            part = f"{parameter.identifier}?"
        if chars > 2 * CALL_CHARS:
            parts.append("...")
            break
        parts.append(part)
        chars += len(part)
    if form.more is not None:
        parts.append(f"**{form.more[0]}")
    result = "" if form.result == ANY else f" -> {short(form.result, form.result_records, keys=True)}"
    return f"{name}({', '.join(parts)}){result}"


def bare_call(form: Form, name: str) -> str:
    """`name(owner, repo, ...)`: what must be given, by name."""
    parts = [one.identifier for one in form.parameters if one.is_required]
    if len(parts) < len(form.parameters) or form.more is not None:
        parts.append("...")
    return f"{name}({', '.join(parts)})"


def short(shape: Type, records: Records, *, keys: bool = False) -> str:
    """With as much of its objects as there is room for; with `keys`, of what is plain in them only the name."""
    text = ""
    for depth in range(DEPTH, -1, -1):
        text = _Notation(records, keys=keys).of(shape, depth)
        if len(text) <= TYPE_CHARS:
            return text
    return f"{text[: TYPE_CHARS - 3]}..."


def _part(parameter: Parameter, records: Records) -> str:
    shape = parameter.type
    if parameter.default in (None, "None") and not parameter.is_required and isinstance(shape, Either):
        # Leaving the argument out means the same.
        kept = tuple(member for member in shape.members if member != NONE)
        shape = kept[0] if len(kept) == 1 else Either(kept)
    typed = "" if shape == ANY else f": {short(shape, records)}"
    told = "" if parameter.default in (None, "None") else parameter.default or ""
    if shape == Plain("str") or (told and _is_plain(shape, choices=False)):
        typed = ""  # most things are text, and a default shows what it is
    if not told:
        return f"{parameter.identifier}{'' if parameter.is_required else '?'}{typed}"
    default = printable_line(told)
    return f"{parameter.identifier}{typed} = {default}" if typed else f"{parameter.identifier}={default}"


def _is_plain(shape: Type, *, choices: bool = True) -> bool:
    match shape:
        case Plain():
            return True
        case Choice():
            return choices
        case ListOf(item):
            return isinstance(item, Plain)
        case Either(members):
            return all(_is_plain(member, choices=choices) for member in members)
        case _:
            return False


class _Notation:
    def __init__(self, records: Records, *, keys: bool) -> None:
        self._records = records
        self._keys = keys
        self._left = TYPES

    def of(self, shape: Type, depth: int) -> str:
        self._left -= 1
        if self._left < 0:
            return "..."
        match shape:
            case Table():
                return "pyarrow.Table"
            case Plain(name):
                return name
            case Choice(values):
                more = "|..." if len(values) > VALUES else ""
                return "|".join(printable_line(repr(value)) for value in values[:VALUES]) + more
            case ListOf(item):
                return "list" if item == ANY else f"list[{self.of(item, depth)}]"
            case TupleOf(items):
                return f"tuple[{', '.join(self.of(item, depth) for item in items)}]"
            case DictOf(value):
                return "dict" if value == ANY else f"dict[str, {self.of(value, depth)}]"
            case Either(members):
                return "|".join(self.of(member, depth) for member in members)
            case Record(name):
                return self._object(self._records[name], depth) if depth else "dict"

    def _object(self, fields: tuple[Field, ...], depth: int) -> str:
        most = 2 * FIELDS if self._keys else FIELDS
        parts = [self._field(field, depth) for field in fields[:most]]
        return f"{{{', '.join([*parts, '...'] if len(fields) > most else parts)}}}"

    def _field(self, field: Field, depth: int) -> str:
        name = field.name if field.name.isidentifier() and field.name.isascii() else repr(field.name)
        is_plain = field.type == ANY or (self._keys and _is_plain(field.type))
        typed = "" if is_plain else f": {self.of(field.type, depth - 1)}"
        return f"{printable_line(name)}{'' if field.is_required else '?'}{typed}"
