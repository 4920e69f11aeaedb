"""Notes found by their meaning: vectors of an embedder, kept in half precision beside the notes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from heapq import nlargest
from importlib import import_module
from operator import mul
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pinfold.memory.database import Database

_NEAREST = 50
"""Notes that meaning adds to those found by words."""
_BATCH = 64
_MOST_NEW = 2048
"""Notes that one search may embed; the rest is left to later ones."""


class Embedder(Protocol):
    name: str
    """Vectors of one name are comparable."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector for each text."""
        ...


def find_nearest(
    database: Database, embedder: Embedder, words: str, visible: str, values: Mapping[str, object]
) -> list[int]:
    """Ids of the notes whose meaning is nearest, the nearest first. Embeds the notes that are not embedded yet."""
    _embed_missing(database, embedder, visible, values)
    wanted = _normalise(embedder.embed([words])[0])
    with database.open() as connection:
        rows = connection.execute(
            f"""SELECT vectors.id, vector FROM vectors JOIN notes USING (id)
            WHERE model = :model AND length(vector) = :size AND {visible}""",  # noqa: S608 - an expression of our own
            {**values, "model": embedder.name, "size": 2 * len(wanted)},
        ).fetchall()
    if not rows:
        return []
    likeness = _compare([vector for _, vector in rows], wanted)
    return [rows[at][0] for at in nlargest(_NEAREST, range(len(rows)), key=likeness.__getitem__)]


def _compare(vectors: Sequence[bytes], wanted: Sequence[float]) -> list[float]:
    """The cosine of each with `wanted`."""
    try:
        numpy: Any = import_module("numpy")  # comes with the built-in embeddings; a hundred times as fast
    except ImportError:
        return [sum(map(mul, struct.unpack(f"<{len(wanted)}e", one), wanted)) for one in vectors]
    table = numpy.frombuffer(b"".join(vectors), "<f2").reshape(len(vectors), -1).astype("f4")
    return (table @ numpy.array(wanted, "f4")).tolist()


def _embed_missing(database: Database, embedder: Embedder, visible: str, values: Mapping[str, object]) -> None:
    with database.open() as connection:
        missing = connection.execute(
            f"""SELECT id, text FROM notes WHERE {visible}
            AND NOT EXISTS (SELECT 1 FROM vectors WHERE vectors.id = notes.id AND model = :model)
            ORDER BY id DESC LIMIT {_MOST_NEW}""",  # noqa: S608 - expressions of our own
            {**values, "model": embedder.name},
        ).fetchall()
    for start in range(0, len(missing), _BATCH):
        part = missing[start : start + _BATCH]
        vectors = map(_normalise, embedder.embed([text for _, text in part]))
        blobs = [struct.pack(f"<{len(vector)}e", *vector) for vector in vectors]
        with database.open(write=True) as connection:  # not open while the embedder works
            connection.executemany(
                # A note may have been changed or forgotten meanwhile.
                "INSERT OR REPLACE INTO vectors SELECT id, ?, ? FROM notes WHERE id = ? AND text = ?",
                [(embedder.name, blob, id_, text) for blob, (id_, text) in zip(blobs, part, strict=True)],
            )


def _normalise(vector: Sequence[float]) -> list[float]:
    """The same direction, of length 1."""
    length = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    return [number / length for number in vector]
