"""Text that leaves the guest, bounded."""

from __future__ import annotations

TEXT_BYTES = 1 << 20
"""Most of a value's text, and of an error's, that leaves the guest."""


def cap_text(text: str) -> bytes:
    # Through `str`, because a program's `__repr__` may return a subclass with an `encode` of its own.
    if str.__len__(text) > TEXT_BYTES:
        text = str.__getitem__(text, slice(TEXT_BYTES))
    encoded = str.encode(text, "utf-8", "backslashreplace")
    if len(encoded) <= TEXT_BYTES:
        return encoded
    return encoded[:TEXT_BYTES].decode("utf-8", "ignore").encode()
