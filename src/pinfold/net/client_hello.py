"""Checks what a program first sends through a tunnel: it must name the host that the tunnel leads to.

Reads the server name of a TLS ClientHello (RFC 8446, RFC 6066) and the Host of a plain HTTP request. TLS is not
terminated, so its content is not seen.
"""

from __future__ import annotations

import re

from pinfold.net.hosts import BadDestination, Destination, Refused, parse_authority

_CHANGE_CIPHER, _ALERT, _HANDSHAKE = 20, 21, 22
_RECORDS = range(20, 25)
"""Record types; only a handshake may come first."""
_CLIENT_HELLO = 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
_LONGEST_HELLO = 132_000
"""The most bytes; no server accepts more."""
_HEAD_BYTES = 1 << 14
"""Limit for the head of a plain request."""
_METHODS = ("GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "TRACE ", "CONNECT ")
_REQUEST = re.compile(r"[A-Z]+ (?P<target>\S*) HTTP/1\.[01]\s*")
UNRECOGNIZED_NAME = bytes((_ALERT, 3, 3, 0, 2, 2, 112))
"""The TLS alert that a program gets on refusal."""


class Greeting:
    """Holds back a program's first bytes until the host they name is checked. For an address, any name may be used."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._held = bytearray()
        """Bytes that are not yet a whole record or head."""
        self._waiting = bytearray()
        """Records whose message is incomplete: a server must not see half a name."""
        self._messages = bytearray()
        """The content of those records."""
        self._is_over = destination.address is not None
        self._is_greeted = self._is_enciphered = False
        """Set once the first ClientHello has passed, and once later records may be encrypted."""
        self.is_tls = False

    def pass_on(self, data: bytes) -> bytes:
        """Return the bytes that may be passed on now. Raises Refused."""
        if self._is_over:
            return data
        self._held += data
        self.is_tls = self.is_tls or self._held[0] in _RECORDS
        if not self.is_tls:
            self._look_at_request()
        passed = bytearray()
        while self.is_tls and not self._is_over and self._take_record():
            if not self._messages:
                passed += self._waiting
                self._waiting.clear()
        if self._is_over:
            passed += self._waiting + self._held
        return bytes(passed)

    def _look_at_request(self) -> None:
        """Check the first HTTP request. Other protocols are not checked."""
        text = self._held.decode("latin-1").replace("\r\n", "\n")
        line, ended, _ = text.partition("\n")
        request = _REQUEST.fullmatch(line)
        if not line.startswith(tuple(method[: len(line)] for method in _METHODS)) or (ended and not request):
            self._is_over = True
        elif request and "\n\n" in text:
            self._is_over = True
            if "://" in request["target"]:
                self._check(request["target"].partition("://")[2].partition("/")[0], "the request")
            for header in text.partition("\n\n")[0].replace("\r", "\n").split("\n")[1:]:
                name, _, value = header.partition(":")
                if name.strip().lower() == "host":
                    self._check(value.strip(), "the Host header")
        elif len(text) > _HEAD_BYTES:
            raise Refused(f"the head of the request to {self._destination} is too long")

    def _take_record(self) -> bool:
        """Consume and check one whole record; False if there is none. Even a second ClientHello is plain text."""
        if len(self._held) < 5 or len(self._held) < (end := 5 + int.from_bytes(self._held[3:5])):
            return False
        record = bytes(self._held[:end])
        del self._held[:end]
        self._waiting += record
        if record[0] == _HANDSHAKE:
            self._messages += record[5:]
            self._judge()
        elif not self._is_greeted:
            raise self._unreadable()
        elif record[0] == _CHANGE_CIPHER:
            self._is_enciphered = True
        elif record[0] != _ALERT:
            self._is_over = True
        return True

    def _judge(self) -> None:
        while self._messages and not self._is_over:
            end = 4 + int.from_bytes(self._messages[1:4])
            is_hello = self._messages[0] == _CLIENT_HELLO
            if not is_hello or (len(self._messages) >= 4 and end > _LONGEST_HELLO):
                if not self._is_greeted or (is_hello and not self._is_enciphered):
                    raise self._unreadable()
                self._is_over = True
            elif len(self._messages) < max(end, 4):
                return
            else:
                self._check_hello(bytes(self._messages[4:end]))
                self._is_greeted = True
                del self._messages[:end]

    def _check_hello(self, hello: bytes) -> None:
        try:
            extensions = _extensions(hello)
            name = _server_name(extensions)
        except ValueError:
            raise self._unreadable() from None
        if _ENCRYPTED_HELLO in extensions:
            raise Refused(f"the TLS greeting to {self._destination} encrypts the server's name (ECH)")
        if name is None:
            raise Refused(f"the TLS greeting to {self._destination} names no server")
        self._check(name, "the TLS greeting")

    def _unreadable(self) -> Refused:
        return Refused(f"the TLS greeting to {self._destination} cannot be read")

    def _check(self, name: str, what: str) -> None:
        try:
            named = parse_authority(name, port=self._destination.port).host
        except BadDestination:
            named = ""
        if named != self._destination.host:
            raise Refused(f"the tunnel leads to {self._destination}, but {what} is for another host")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bool__(self) -> bool:
        return bool(self._data)

    def take(self, count: int) -> bytes:
        if count > len(self._data):
            raise ValueError("it ends early")
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))


def _extensions(hello: bytes) -> dict[int, bytes]:
    body = _Reader(hello)
    body.take(2 + 32)
    for size in (1, 2, 1):  # the session, ciphers, compressions
        body.vector(size)
    listed = _Reader(body.vector(2) if body else b"")
    if body:
        raise ValueError("there is more behind it")
    found: dict[int, bytes] = {}
    while listed:
        kind = listed.number(2)
        if kind in found:
            raise ValueError("an extension is there twice")
        found[kind] = listed.vector(2)
    return found


def _server_name(extensions: dict[int, bytes]) -> str | None:
    if _SERVER_NAME not in extensions:
        return None
    names = _Reader(_Reader(extensions[_SERVER_NAME]).vector(2))
    if names.number(1) != 0:
        raise ValueError("it is not a host name")
    name = names.vector(2).decode("ascii")
    if names:
        raise ValueError("there are several")
    return name
