"""Keeps known secrets out of operator logs and messages. A net, not a wall: the sandbox is the wall."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHAPES = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}"
    r"|hf_[A-Za-z0-9]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,})"
)
_MARK = "[redacted]"


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the given values and without what looks like a key."""
    for secret in sorted((secret for secret in secrets if len(secret) >= 6), key=len, reverse=True):
        text = text.replace(secret, _MARK)
    return _SHAPES.sub(_MARK, text)
