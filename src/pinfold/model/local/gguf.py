"""The first few facts in a GGUF file. Reads its head and nothing of the weights."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pinfold.model.local.errors import CannotServe

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
