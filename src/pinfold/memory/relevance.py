"""Ranks the texts that fit a query: by words (BM25), by neighbouring texts, and by meaning.

Texts are rows of a table with FTS5 index `words`. Vectors of an embedder are stored with the notes, in half precision.
"""

from __future__ import annotations

import math
import re
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from heapq import nlargest
from importlib import import_module
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pinfold.memory.store import Database

CANDIDATES = 100
"""Best matches whose neighbours are looked at."""
_NEIGHBOUR = 0.3
"""Share of a text's score that the texts before and after it in the same session get; measured on LoCoMo."""
_SESSION = 0.3
"""Share of the best score in a session that each of its texts gets; measured on LoCoMo."""
_MEANING = 1 / 3
"""Weight of a rank by meaning relative to the same rank by words; a higher weight is worse on LoCoMo."""
_RANK = 10
"""Damps the differences between the first ranks when the two rankings are merged."""
_SCORED = 1000
"""The most matches that are scored; scoring takes most of the time."""
_QUERY_WORDS = 24
"""The most words of a query that are used; more make it slower, not better."""
_STOP_WORDS = frozenset(
    """a about after again all also am an and any anything are as at be because been before being between both but by can
    could did didn do does doing don done during each ever every few for from get gets getting go goes going gone got had has
    have having he her here hers him his how i if in into is it its just kind let like likely made make many may me might more
    most much must my no not now of off on one only or other our out over own s said same say says she should so some
    something such t than that the their them then there these they thing things think this those through to too type under up
    us use used using very want was way we well were what when where which while who whom whose why will with would yet you
    your""".split()  # noqa: SIM905 - a line each would be 170
)
TOKENIZER = "porter unicode61 remove_diacritics 2"


def find_terms(words: str) -> list[str]:
    """Return the significant words of a query, quoted so that nothing in them acts as FTS5 syntax."""
    found = [word.casefold() for word in re.findall(r"\w+", words)]
    telling = [word for word in found if word not in _STOP_WORDS] or found
    return [f'"{word}"' for word in dict.fromkeys(telling[:_QUERY_WORDS])]


def _build_query(connection: sqlite3.Connection, terms: Sequence[str]) -> str:
    """Return an FTS5 query for any of the terms; if too many texts match, only for the rarest, which say most."""

    def count(query: str, most: int = _SCORED + 1) -> int:
        counting = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
        return connection.execute(counting, (query, most)).fetchone()[0]

    whole = " OR ".join(terms)
    if count(whole) <= _SCORED:
        return whole
    counts = {term: found for term in terms if (found := count(term))}
    if min(counts.values()) > _SCORED:  # full counts are needed to find the rarest
        counts = {term: count(term, -1) for term in counts}
    rarest = sorted(counts, key=counts.__getitem__)
    sums = accumulate(counts[term] for term in rarest)
    return " OR ".join(term for term, total in zip(rarest, sums, strict=True) if total <= _SCORED or term == rarest[0])


def rank(
    connection: sqlite3.Connection,
    words: str,
    limit: int,
    *,
    table: str,
    visible: str,
    values: Mapping[str, object],
    factor: str = "1",
    nearest: Sequence[int] = (),
) -> list[int]:
    """Return the ids of the texts that fit best, best first; equal scores newest first. Neighbours may be invisible.

    `visible` and `factor` are SQL expressions over `table`, and `values` their parameters: which rows count, and the
    weight of a row's own score. A text without any of the words never adds to the matches: it only replaces a worse
    one if there are more than `limit`. `nearest`: ids of the texts nearest in meaning, nearest first.
    """
    terms = find_terms(words)
    if not terms:
        return [*nearest]
    hits: list[tuple[int, float, str, int | None, int | None]] = connection.execute(
        f"""WITH hits AS MATERIALIZED (
            SELECT {table}.id AS id, {table}.session AS session, -bm25(words, 1.0, 2.0) * {factor} AS score
            FROM words JOIN {table} ON {table}.id = words.rowid
            WHERE words MATCH :query AND {visible} ORDER BY score DESC, id DESC LIMIT {CANDIDATES})
        SELECT id, score, session,
            (SELECT max(id) FROM {table} WHERE session = hits.session AND id < hits.id),
            (SELECT min(id) FROM {table} WHERE session = hits.session AND id > hits.id)
        FROM hits""",
        {**values, "query": _build_query(connection, terms)},
    ).fetchall()
    scores = _score_with_neighbours(hits)
    if len(hits) <= limit:
        matching = {hit[0] for hit in hits}
        scores = {id_: score for id_, score in scores.items() if id_ in matching}
    best = sorted(scores, key=lambda id_: (-scores[id_], -id_))
    return _join_ranks(best, nearest) if nearest else best


def _score_with_neighbours(hits: Sequence[tuple[int, float, str, int | None, int | None]]) -> dict[int, float]:
    """Score texts by their own match, by matches next to them, and by the best match in their session."""
    scores: dict[int, float] = {}
    session_of: dict[int, str] = {}
    best: dict[str, float] = {}
    for id_, score, session, before, after in hits:
        best[session] = max(best.get(session, 0.0), score)
        for there, share in ((id_, 1.0), (before, _NEIGHBOUR), (after, _NEIGHBOUR)):
            if there is not None:
                scores[there] = scores.get(there, 0.0) + share * score
                session_of[there] = session
    return {id_: score + _SESSION * best[session_of[id_]] for id_, score in scores.items()}


def _join_ranks(by_words: Sequence[int], by_meaning: Sequence[int]) -> list[int]:
    """Merge two rankings by reciprocal ranks."""
    scores: dict[int, float] = {}
    for weight, ids in ((1.0, by_words), (_MEANING, by_meaning)):
        for at, id_ in enumerate(ids, 1):
            scores[id_] = scores.get(id_, 0.0) + weight / (_RANK + at)
    return sorted(scores, key=lambda id_: -scores[id_])


# By meaning

_NEAREST = 50
"""The most notes that meaning adds to those found by words."""
_BATCH = 64
_MOST_NEW = 2048
"""The most notes that one search embeds; the rest is left to later searches."""


class Embedder(Protocol):
    name: str
    """Vectors made under the same name are comparable."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector for each text."""
        ...


def find_nearest(
    database: Database, embedder: Embedder, words: str, visible: str, values: Mapping[str, object]
) -> list[int]:
    """Return the ids of the notes nearest in meaning, nearest first. Embeds the notes that are not embedded yet."""
    _embed_missing(database, embedder, visible, values)
    wanted = _normalise(embedder.embed([words])[0])
    with database.open() as connection:
        rows = connection.execute(
            f"""SELECT vectors.id, vector FROM vectors JOIN notes USING (id)
            WHERE model = :model AND length(vector) = :size AND {visible}""",
            {**values, "model": embedder.name, "size": 2 * len(wanted)},
        ).fetchall()
    if not rows:
        return []
    likeness = _compare([vector for _, vector in rows], wanted)
    return [rows[at][0] for at in nlargest(_NEAREST, range(len(rows)), key=likeness.__getitem__)]


def _compare(vectors: Sequence[bytes], wanted: Sequence[float]) -> list[float]:
    """Return the cosine of each vector with `wanted`."""
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
            ORDER BY id DESC LIMIT {_MOST_NEW}""",
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
    """Scale a vector to length 1."""
    length = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    return [number / length for number in vector]
