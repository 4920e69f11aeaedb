"""The guest's end of the channel: sends and receives frames of JSON header and bytes, without interpreting them."""

from __future__ import annotations

import os
import select
import sys
from _socket import CMSG_SPACE, SCM_RIGHTS, SOL_SOCKET, socket  # importing all of `socket` takes milliseconds
from contextlib import suppress
from json import JSONDecoder, JSONEncoder
from struct import Struct

LENGTHS = Struct("<II")
CHUNK_BYTES = 1 << 20
LOST_CHANNEL = 70
"""Exit code when the program closed or replaced the channel's descriptor."""

Header = dict[str, object]
# Bound at import: a program may replace these names in their modules, and what `json.dumps` and `json.loads` use.
_encode, _decode = JSONEncoder().encode, JSONDecoder().decode
_poll, _POLLIN = select.poll, select.POLLIN


class Channel:
    """One framed socket. Child processes never get it: exec closes it, and so does fork."""

    def __init__(self, fd: int) -> None:
        self.use(fd)
        os.register_at_fork(after_in_child=self._leave)

    def use(self, fd: int) -> None:
        """Switch to another file descriptor."""
        self.fd = fd
        self._inode = os.fstat(fd).st_ino
        os.set_inheritable(fd, False)

    def receive(self) -> tuple[Header, bytes] | None:
        """Return the next frame, or None if the host has closed the channel."""
        try:
            header_size, body_size = LENGTHS.unpack(self._read(LENGTHS.size))
            header = _decode(self._read(header_size).decode())
            return header, self._read(body_size)
        except EOFError:
            return None

    def send(self, header: Header, body: bytes = b"") -> None:
        encoded = _encode(header).encode()
        frame = memoryview(LENGTHS.pack(len(encoded), len(body)) + encoded + body)
        # The program may have closed this descriptor and opened another file under its number.
        if os.fstat(self.fd).st_ino != self._inode:
            os._exit(LOST_CHANNEL)
        while frame:
            frame = frame[os.write(self.fd, frame) :]

    def wait(self, seconds: float | None = None) -> bool:
        """Return whether the host sends or hangs up within this time. A signal handler may raise here without harm."""
        poll = _poll()
        poll.register(self.fd, _POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def has_input(self) -> bool:
        """Return whether the host has sent something. While a cell starts this can only be an interrupt."""
        return self.wait(0)

    def receive_fd(self) -> int:
        """Receive a file descriptor that the host sends between two frames. Raises OSError."""
        channel = socket(fileno=self.fd)
        try:
            _, with_it, _, _ = channel.recvmsg(1, CMSG_SPACE(4))
        finally:
            channel.detach()
        for level, kind, data in with_it:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                return int.from_bytes(data[:4], sys.byteorder)
        raise OSError("the host sent no descriptor")

    def _read(self, size: int) -> bytes:
        """Read exactly `size` bytes. Raises EOFError if the host has closed the channel."""
        parts = bytearray()
        while len(parts) < size:
            more = os.read(self.fd, min(size - len(parts), CHUNK_BYTES))
            if not more:
                raise EOFError
            parts += more
        return bytes(parts)

    def _leave(self) -> None:
        with suppress(OSError):
            if os.fstat(self.fd).st_ino == self._inode:
                os.close(self.fd)
