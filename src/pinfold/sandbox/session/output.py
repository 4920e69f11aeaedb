"""Collects one stream of a guest: bounded, decoded as it comes, never waited for. Not for the channel."""

from __future__ import annotations

import codecs
import fcntl
import os
import struct
import termios

from pinfold.sandbox.contract import OnOutput, Stream

CHUNK_BYTES = 1 << 17
"""Small enough to stay in the processor's cache from read to decode; 1 MB reads were clearly slower."""
CHUNKS = 8
"""Read at one waking, so that a flood does not starve the event loop."""


class OutputListener:
    """Passes output to `on_output` until that raises, which the caller of the cell or command gets in the end."""

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
    """What came since the last `take`; owns the descriptor."""

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
        """More than once means no more: by then the number may be another's."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def begin(self, listener: OutputListener) -> None:
        """A cell starts; what came since the last one counts to it."""
        self._listener = listener
        for text in self._parts:
            self._tell(text)

    def read(self) -> bool:
        """Take some of what is there; False when every writer has closed."""
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
        """Take exactly what is there now: a background writer could feed us for ever."""
        waiting: int = struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, b"\0\0\0\0"))[0]
        while waiting > 0:
            data = os.read(self.fd, min(waiting, CHUNK_BYTES))
            if not data:
                return
            self._add(data)
            waiting -= len(data)

    def take(self) -> tuple[str, int]:
        """The text so far and how many bytes were dropped; starts afresh."""
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
            # Half a character at the cut is not kept either, rather than shown as a replacement sign.
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
