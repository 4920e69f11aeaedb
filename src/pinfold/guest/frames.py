"""The guest's end of the channel: frames of JSON header and bytes. Knows nothing of what they mean."""

from __future__ import annotations

import os
import select
from json import dumps, loads
from struct import Struct

LENGTHS = Struct("<II")
CHUNK_BYTES = 1 << 20
LOST_CHANNEL = 70
"""Exit code when the program closed or replaced the channel's descriptor."""

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable

Header = dict[str, object]


class Channel:
    """One framed socket. The program's own processes never get it: exec closes it, and so does fork."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._inode = os.fstat(fd).st_ino
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        os.set_inheritable(fd, False)
        os.register_at_fork(after_in_child=self._leave)

    def receive(self) -> tuple[Header, bytes] | None:
        """The next frame, or None when the host has gone."""
        lengths = self._exactly(LENGTHS.size)
        if lengths is None:
            return None
        header_size, body_size = LENGTHS.unpack(lengths)
        header = self._exactly(header_size)
        body = self._exactly(body_size) if body_size else b""
        if header is None or body is None:
            return None
        return loads(header), body

    def send(self, header: Header, body: bytes = b"") -> None:
        encoded = dumps(header).encode()
        frame = memoryview(LENGTHS.pack(len(encoded), len(body)) + encoded + body)
        # The program may have closed our descriptor and opened a file of its own under that number.
        if os.fstat(self._fd).st_ino != self._inode:
            os._exit(LOST_CHANNEL)
        while frame:
            frame = frame[os.write(self._fd, frame) :]

    def wait(self) -> None:
        """Until the host speaks or goes. The place where a stray signal of the program's may raise harmlessly."""
        self._poll.poll()

    def looker(self) -> Callable[[float], bool]:
        """Waits so many seconds for the host to say something more. For one thread; `wait` is the main one's."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return lambda seconds: bool(poll.poll(seconds * 1000))

    def waiting(self) -> bool:
        """Whether the host has said something more. While a cell starts this can only be an interrupt."""
        return bool(self._poll.poll(0))

    def _exactly(self, size: int) -> bytes | None:
        data = os.read(self._fd, min(size, CHUNK_BYTES))
        if len(data) == size:
            return data
        parts = bytearray()
        while data:
            parts += data
            if len(parts) == size:
                return bytes(parts)
            data = os.read(self._fd, min(size - len(parts), CHUNK_BYTES))
        return None

    def _leave(self) -> None:
        try:
            if os.fstat(self._fd).st_ino == self._inode:
                os.close(self._fd)
        except OSError:
            return
