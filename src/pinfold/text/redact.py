"""Keeps secrets and control characters out of what is shown and logged. Not a boundary; the sandbox is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from threading import Lock

from pinfold.text.format import MARK, bare, printable, printable_line

SHORTEST = 6
"""A shorter value is not treated as a secret: it would occur everywhere."""
_FORM = 8
"""A shorter encoded form of a secret is not searched for."""
_known: frozenset[str] = frozenset()
_own: frozenset[str] = frozenset()
_changing = Lock()


def keep_secret(*values: str) -> None:
    """Never show these values in this process again, neither as they are nor encoded."""
    global _known  # noqa: PLW0603 - every sink of the process must know
    with _changing:
        _known = _known.union(value for value in values if len(value) >= SHORTEST)


def keep_own_secret(*values: str) -> None:
    """Do the same for Pinfold's own secrets, which are not recorded either."""
    global _own  # noqa: PLW0603 - as above
    keep_secret(*values)
    with _changing:
        _own = _own.union(value for value in values if len(value) >= SHORTEST)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without kept secrets, without `secrets`, and without anything that looks like a key."""
    hidden = _redact_text(text, secrets := tuple(secrets))
    # Colours and invisible letters must not keep a secret from being found.
    seen = bare(text)
    if seen != text and (clear := _redact_text(seen, secrets)) != seen:
        return clear
    return hidden


def presentable(text: str) -> str:
    """Return `text` for a person to read: without secrets, and with nothing that controls a terminal or hides.

    Everything of unknown origin goes through this or one of the next three, except JSON, which escapes control characters.
    """
    return printable(redact(text))


def presentable_line(text: str) -> str:
    """As `presentable`, on one line."""
    return printable_line(redact(text))


def exact(text: str) -> str:
    """Return `text` for a person who must approve it: hides only secrets that cannot be part of a command.

    A value after `PASSWORD=`, or what looks like the inside of a private key, may be a program.
    """
    from pinfold.text.secret_patterns import without_shapes

    return printable(without_shapes(without_known(text)))


def exact_line(text: str) -> str:
    """As `exact`, on one line."""
    return exact(text).replace("\n", "\\n")


def without_known(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without kept secrets and without `secrets`; otherwise unchanged."""
    return _without(text, _known.union(secrets))


def keeps_own() -> bool:
    """Return whether Pinfold has secrets of its own."""
    return bool(_own)


def without_own(text: str) -> str:
    """Return `text` without Pinfold's own secrets; the same object if it holds none."""
    return _without(text, _own) if _own else text


def _without(text: str, secrets: frozenset[str]) -> str:
    from pinfold.text.secret_patterns import without_escaped

    forms = _forms_of(secrets)
    text = _without_forms(text, forms)
    return without_escaped(text, partial(_places, forms)) if forms else text


def _without_forms(text: str, forms: tuple[str, ...]) -> str:
    for form in forms:
        text = text.replace(form, MARK)
    return text


def _places(forms: tuple[str, ...], text: str) -> Iterator[tuple[int, int]]:
    """Yield where each form occurs in `text`."""
    for form in forms:
        at = text.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = text.find(form, at + len(form))


def _redact_text(text: str, secrets: Iterable[str]) -> str:
    # Compiling the patterns takes a while, and many processes show nothing.
    from pinfold.text.secret_patterns import shapes_in, without_escaped, without_pairs, without_shapes

    forms = _forms_of(_known.union(secrets))
    text = without_shapes(_without_forms(text, forms))
    text = without_escaped(text, partial(_places, forms), shapes_in)
    return without_pairs(text)


@lru_cache(maxsize=16)
def _forms_of(values: frozenset[str]) -> tuple[str, ...]:
    """Return every encoding of every value, longest first: a shorter one may be part of a longer one."""
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
    """Yield base64 forms, also inside longer data: bytes before shift the letters, and the end letters mix bytes."""
    from base64 import b64encode, urlsafe_b64encode

    for before in range(3):
        first = (0, 2, 3)[before]
        last = (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]
