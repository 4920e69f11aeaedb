"""Makes text safe to show in a terminal. Changes nothing that is meant to be read."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, bidirectional overrides and isolates, lone surrogates.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with everything that could steer a terminal shown as a visible escape."""
    return _HIDDEN.sub(_visible, text.replace("\r\n", "\n"))


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
