"""Keeps secrets out of what is shown and logged. A net, not a wall: the sandbox is the wall."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from threading import Lock

from pinfold.text.clean import bare
from pinfold.text.mark import MARK

SHORTEST = 6
"""Below this a value is no secret: it would be found everywhere."""
_FORM = 8
"""Letters that an encoded form has at least, for the same reason."""
_known: frozenset[str] = frozenset()
_own: frozenset[str] = frozenset()
_changing = Lock()


def keep_secret(*values: str) -> None:
    """From now on, in this process, none of these is shown: neither as it is nor in another writing."""
    global _known  # noqa: PLW0603 - every sink of the process must know
    with _changing:
        _known = _known.union(value for value in values if len(value) >= SHORTEST)


def keep_own_secret(*values: str) -> None:
    """The same for secrets of Pinfold's own, which are not recorded either."""
    global _own  # noqa: PLW0603 - as above
    keep_secret(*values)
    with _changing:
        _own = _own.union(value for value in values if len(value) >= SHORTEST)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without what was kept secret, without `secrets`, and without what looks like a key."""
    hidden = _redact_text(text, secrets := tuple(secrets))
    # Colours and invisible letters must not keep a secret from being found.
    seen = bare(text)
    if seen != text and (clear := _redact_text(seen, secrets)) != seen:
        return clear
    return hidden


def without_known(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without what was kept secret and without `secrets`, and otherwise exact."""
    return _without(text, _known.union(secrets))


def keeps_own() -> bool:
    """Whether there is any secret of Pinfold's own."""
    return bool(_own)


def without_own(text: str) -> str:
    """`text` without secrets of Pinfold's own, and otherwise exact: the same object if there is none in it."""
    return _without(text, _own) if _own else text


def _without(text: str, secrets: frozenset[str]) -> str:
    from pinfold.text.escapes import without_escaped

    forms = _forms_of(secrets)
    text = _without_forms(text, forms)
    return without_escaped(text, partial(_places, forms)) if forms else text


def _without_forms(text: str, forms: tuple[str, ...]) -> str:
    for form in forms:
        if form in text:
            text = text.replace(form, MARK)
    return text


def _places(forms: tuple[str, ...], text: str) -> Iterator[tuple[int, int]]:
    """Of every form in `text`."""
    for form in forms:
        at = text.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = text.find(form, at + len(form))


def _redact_text(text: str, secrets: Iterable[str]) -> str:
    # Their patterns take a while to compile, and many a process shows nothing.
    from pinfold.text.escapes import without_escaped
    from pinfold.text.pairs import without_pairs
    from pinfold.text.shapes import shapes_in, without_shapes

    forms = _forms_of(_known.union(secrets))
    text = without_shapes(_without_forms(text, forms))
    text = without_escaped(text, partial(_places, forms), shapes_in)
    return without_pairs(text)


@lru_cache(maxsize=16)
def _forms_of(values: frozenset[str]) -> tuple[str, ...]:
    """Every writing of every value, the longest first: a shorter one may be part of it."""
    forms = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _forms(value: str) -> set[str]:
    import html
    import json
    from urllib.parse import quote, quote_plus

    data = value.encode("utf-8", "surrogatepass")
    forms = {
        quote(data, safe=""),
        quote(data),
        quote_plus(data),
        quote_plus(data).lower(),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(value)[1:-1])[1:-1],
        repr(value)[1:-1],
        html.escape(value),
        data.hex(),
        data.hex().upper(),
        *_base64(data),
    }
    return {value, *(form for form in forms if len(form) >= _FORM)}


def _base64(data: bytes) -> Iterable[str]:
    """As part of any longer text too: what stands before it shifts the letters, of which those at the ends are not its own."""
    from base64 import b64encode, urlsafe_b64encode

    for before in range(3):
        first = (0, 2, 3)[before]
        last = (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]
