"""The end of what a program says, however much that is."""

from __future__ import annotations

TAIL_BYTES = 8_000


class Tail:
    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > 2 * TAIL_BYTES:
            del self._kept[:-TAIL_BYTES]

    @property
    def text(self) -> str:
        return bytes(self._kept[-TAIL_BYTES:]).decode("utf-8", "replace")
