"""The guest's end of the channel: frames of JSON header and bytes. Knows nothing of what they mean."""

from __future__ import annotations

import os
import select
import sys
from _socket import (  # the whole of `socket` takes milliseconds to import
    CMSG_SPACE,
    SCM_RIGHTS,
    SOL_SOCKET,
    socket,
)
from json import JSONDecoder, JSONEncoder
from struct import Struct

LENGTHS = Struct("<II")
CHUNK_BYTES = 1 << 20
FRAME_BYTES = 1 << 12
"""Most frames are smaller; room for bigger ones would have to be made anew for each."""
LOST_CHANNEL = 70
"""Exit code when the program closed or replaced the channel's descriptor."""

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable

Header = dict[str, object]
# Bound now: a program may replace what `json.dumps` and `json.loads` use.
_encode, _decode = JSONEncoder().encode, JSONDecoder().decode


def encode_frame(header: Header, body: bytes) -> bytes:
    encoded = _encode(header).encode()
    return LENGTHS.pack(len(encoded), len(body)) + encoded + body


class Channel:
    """One framed socket. The program's own processes never get it: exec closes it, and so does fork."""

    def __init__(self, fd: int) -> None:
        self._read = b""
        """Of the next frame, what came with the last."""
        self.use(fd)
        os.register_at_fork(after_in_child=self._leave)

    @property
    def fd(self) -> int:
        return self._fd

    def use(self, fd: int) -> None:
        """From now on it is this one."""
        self._fd = fd
        self._inode = os.fstat(fd).st_ino
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        os.set_inheritable(fd, False)

    def receive(self) -> tuple[Header, bytes] | None:
        """The next frame, or None when the host has gone."""
        data = self._read or os.read(self._fd, FRAME_BYTES)
        self._read = b""
        if len(data) < LENGTHS.size and not (data := self._read_exactly(data, LENGTHS.size)):
            return None
        header_size, body_size = LENGTHS.unpack_from(data)
        start = LENGTHS.size + header_size
        end = start + body_size
        if len(data) < end and not (data := self._read_exactly(data, end)):
            return None
        if len(data) > end:
            self._read = data[end:]
        return _decode(data[LENGTHS.size : start].decode()), data[start:end]

    def send(self, header: Header, body: bytes = b"") -> None:
        frame = memoryview(encode_frame(header, body))
        # The program may have closed our descriptor and opened a file of its own under that number.
        if os.fstat(self._fd).st_ino != self._inode:
            os._exit(LOST_CHANNEL)
        sent = os.write(self._fd, frame)
        while sent < len(frame):
            sent += os.write(self._fd, frame[sent:])

    def wait(self) -> None:
        """Until the host speaks or goes. The place where a stray signal of the program's may raise harmlessly."""
        if not self._read:
            self._poll.poll()

    def make_poller(self) -> Callable[[float], bool]:
        """Waits so many seconds for the host to say something more. For one thread; `wait` is the main one's."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return lambda seconds: bool(self._read or poll.poll(seconds * 1000))

    def has_input(self) -> bool:
        """Whether the host has said something more. While a cell starts this can only be an interrupt."""
        return bool(self._read or self._poll.poll(0))

    def receive_fd(self) -> int:
        """A descriptor that the host sends between two frames. Raises OSError."""
        channel = socket(fileno=self._fd)
        try:
            _, with_it, _, _ = channel.recvmsg(1, CMSG_SPACE(4))
        finally:
            channel.detach()
        for level, kind, data in with_it:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                return int.from_bytes(data[:4], sys.byteorder)
        raise OSError("the host sent no descriptor")

    def _read_exactly(self, data: bytes, size: int) -> bytes:
        """`data` with what is missing to this size; empty when the host has gone."""
        parts = bytearray(data)
        while len(parts) < size:
            more = os.read(self._fd, min(size - len(parts), CHUNK_BYTES))
            if not more:
                return b""
            parts += more
        return bytes(parts)

    def _leave(self) -> None:
        try:
            if os.fstat(self._fd).st_ino == self._inode:
                os.close(self._fd)
        except OSError:
            return
