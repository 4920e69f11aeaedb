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
PIPE_BYTES = 1 << 20


def widen(fd: int) -> None:
    """A bigger pipe wakes us less often; where the kernel refuses, the small one works too."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        try:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            return


class Output:
    """What came since the last `take`; owns the descriptor."""

    def __init__(self, stream: Stream, fd: int, cap: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.failure: Exception | None = None
        """What `on_output` raised; it is not called again for this cell."""
        self._stream: Stream = stream
        self._cap = cap
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self._kept = 0
        self._dropped = 0
        self._on_output: OnOutput | None = None

    def close(self) -> None:
        """More than once means no more: by then the number may be another's."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def begin(self, on_output: OnOutput | None) -> None:
        """A cell starts; what came since the last one counts to it."""
        self._on_output = on_output
        self.failure = None
        if on_output is not None:
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
            self._on_output = None
            return "", 0
        rest = self._decoder.decode(b"", final=True)
        if self._dropped:
            self._tell(rest)
        else:
            self._keep(rest)
        text, dropped = "".join(self._parts), self._dropped
        self._parts, self._kept, self._dropped, self._on_output = [], 0, 0, None
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
        if self._on_output is None:
            self._decoder.reset()
        else:
            self._tell(self._decoder.decode(data))

    def _keep(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._tell(text)

    def _tell(self, text: str) -> None:
        if self._on_output is None or not text:
            return
        try:
            self._on_output(self._stream, text)
        except Exception as error:  # noqa: BLE001 - the caller's: `run` raises it again to the caller
            self.failure = error
            self._on_output = None
