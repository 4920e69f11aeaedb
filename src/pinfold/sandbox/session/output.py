"""Collects one output stream of a guest: bounded, decoded as it arrives, never blocking. Not for the channel."""

from __future__ import annotations

import codecs
import fcntl
import os
import struct
import termios

from pinfold.sandbox.contract import OnOutput, Stream

CHUNK_BYTES = 1 << 17
"""Small enough to stay in the CPU cache from read to decode; reads of 1 MB were clearly slower."""
CHUNKS = 8
"""Chunks read per event-loop callback, so that a flood of output does not starve the loop."""


class OutputListener:
    """Passes output to `on_output` until that raises; `finish` then raises the same exception to the caller."""

    def __init__(self, on_output: OnOutput | None) -> None:
        self.on_output = on_output
        self.failure: Exception | None = None

    def tell(self, stream: Stream, text: str) -> None:
        if self.on_output is None or not text:
            return
        try:
            self.on_output(stream, text)
        except Exception as error:  # noqa: BLE001 - the caller's: it is raised again to the caller
            self.failure, self.on_output = error, None

    def finish(self) -> None:
        self.on_output = None
        if self.failure is not None:
            raise self.failure


SILENT = OutputListener(None)


class Output:
    """The output since the last `take`. Owns the file descriptor."""

    def __init__(self, stream: Stream, fd: int, cap: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._stream: Stream = stream
        self._cap = cap
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self._kept = 0
        self._dropped = 0
        self._listener = SILENT

    def close(self) -> None:
        """Close the file descriptor. Idempotent, because its number may be reused."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def begin(self, listener: OutputListener) -> None:
        """Start a cell. Output since the last cell counts as its own."""
        self._listener = listener
        for text in self._parts:
            self._tell(text)

    def read(self) -> bool:
        """Read some of what is there. Returns False once every writer has closed."""
        for _ in range(CHUNKS):
            try:
                data = os.read(self.fd, CHUNK_BYTES)
            except BlockingIOError:
                return True
            self._add(data)
            if len(data) < CHUNK_BYTES:
                return bool(data)
        return True

    def drain(self) -> None:
        """Read exactly what is there now; a background writer may never stop writing."""
        waiting: int = struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, b"\0\0\0\0"))[0]
        while waiting > 0:
            data = os.read(self.fd, min(waiting, CHUNK_BYTES))
            if not data:
                return
            self._add(data)
            waiting -= len(data)

    def take(self) -> tuple[str, int]:
        """Return the text so far and the number of dropped bytes, and start afresh."""
        if not self._kept and not self._dropped:
            self._listener = SILENT
            return "", 0
        rest = self._decoder.decode(b"", final=True)
        if self._dropped:
            self._tell(rest)
        else:
            self._keep(rest)
        text, dropped = "".join(self._parts), self._dropped
        self._parts, self._kept, self._dropped, self._listener = [], 0, 0, SILENT
        return text, dropped

    def _add(self, data: bytes) -> None:
        room = self._cap - self._kept
        if len(data) <= room:
            self._kept += len(data)
            self._keep(self._decoder.decode(data))
            return
        if room > 0:
            self._kept = self._cap
            self._keep(self._decoder.decode(data[:room]))
            # A character cut in half is dropped rather than shown as a replacement character.
            self._dropped += len(self._decoder.getstate()[0])
            data = data[room:]
        self._dropped += len(data)
        if self._listener.on_output is None:
            self._decoder.reset()
        else:
            self._tell(self._decoder.decode(data))

    def _keep(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._tell(text)

    def _tell(self, text: str) -> None:
        self._listener.tell(self._stream, text)
