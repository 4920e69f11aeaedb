"""Reads the head of a proxy request, strictly: two parsers that differ on one byte are how requests are smuggled."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.net.egress import How
from pinfold.net.errors import BadDestination, NetError
from pinfold.net.hosts import Destination, parse_authority, parse_url

Body: TypeAlias = int | Literal["chunked"]
"""How many bytes follow, or that they come in chunks."""
HEADERS = 100
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) ([!-~]{1,16384}) (HTTP/1\.[01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_LENGTH = re.compile(r"[0-9]{1,18}")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [\t -~\x80-\xff]*)?")
HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_FRAMING = frozenset(("host", "content-length", "transfer-encoding", "expect"))
"""Ours to write, and never named by `Connection`."""
_ONCE = ("host", "content-length", "transfer-encoding")


class BadRequest(NetError):
    """Not a request of a proxy's; says what is wrong."""


class Head(Struct, frozen=True, kw_only=True):
    how: How
    destination: Destination
    passed_on: bytes = b""
    """What the server gets in its place; nothing for a tunnel."""
    body: Body = 0
    wants_continue: bool = False


def parse_head(raw: bytes) -> Head:
    """`raw` ends before the empty line. Raises BadRequest and BadDestination."""
    lines = _lines(raw)
    found = _REQUEST_LINE.fullmatch(lines[0])
    if found is None:
        raise BadRequest("the first line is not that of an HTTP/1.1 request")
    method, target, version = (part.decode("ascii") for part in found.groups())
    headers = _headers(lines[1:])
    if method == "CONNECT":
        return _tunnel(target, headers)
    return _request(method, target, version, headers)


def parse_status(raw: bytes) -> tuple[int, bytes]:
    """The status of a server's head and what the client gets in its place. Raises BadRequest.

    Only the client's own program reads it, and nothing after it on this connection: it is judged less strictly.
    """
    lines = raw.split(b"\r\n")
    found = _STATUS_LINE.fullmatch(lines[0])
    if found is None:
        raise BadRequest("the server's answer is no HTTP/1.1")
    kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in _OF_THIS_HOP]
    return int(found[1]), b"\r\n".join([lines[0], *kept, b"Connection: close", b"", b""])


_OF_THIS_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"upgrade"))


def _lines(raw: bytes) -> list[bytes]:
    lines = raw.split(b"\r\n")
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise BadRequest("a line ends with half of a line end")
    if any(line.startswith((b" ", b"\t")) for line in lines):
        raise BadRequest("a header goes on in the next line")
    if len(lines) > HEADERS + 1:
        raise BadRequest(f"there are more than {HEADERS} headers")
    return lines


def _headers(lines: list[bytes]) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise BadRequest("a header is none: it has no plain name, or a control character in it")
        headers.append((found[1].decode("ascii"), found[2].decode("latin-1").rstrip(" \t")))
    names = [name.lower() for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise BadRequest(f"the header {name} is there more than once")
    return headers


def _tunnel(target: str, headers: list[tuple[str, str]]) -> Head:
    destination = parse_authority(target)
    _check_host(headers, destination, destination.port)
    if {"content-length", "transfer-encoding"} & {name.lower() for name, _ in headers}:
        raise BadRequest("CONNECT has no body")
    return Head(how="tunnel", destination=destination)


def _request(method: str, target: str, version: str, headers: list[tuple[str, str]]) -> Head:
    if target.startswith("/") or target == "*":
        raise BadRequest("this is a proxy: the first line must name the whole URL")
    url = parse_url(target)
    if url.scheme != "http":
        raise BadRequest("for https this proxy takes CONNECT only")
    has_host = _check_host(headers, url.destination, 80)
    if version == "HTTP/1.1" and not has_host:
        raise BadRequest("there is no Host header")
    known = {name.lower(): value for name, value in headers}
    body = _body(known, version)
    expects = known.get("expect", "").lower()
    if expects not in ("", "100-continue"):
        raise BadRequest("the header Expect asks for something unknown")
    dropped = HOP_BY_HOP | _FRAMING | _named_by_connection(headers)
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    framing = [("Transfer-Encoding", "chunked")] if body == "chunked" else []
    if "content-length" in known:
        framing = [("Content-Length", str(body))]
    whole = [("Host", url.host_header), *kept, *framing, ("Connection", "close")]
    text = f"{method} {url.target} {version}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in whole)
    return Head(
        how="request",
        destination=url.destination,
        passed_on=f"{text}\r\n".encode("latin-1"),
        body=body,
        wants_continue=bool(expects) and version == "HTTP/1.1",
    )


def _check_host(headers: list[tuple[str, str]], destination: Destination, port: int) -> bool:
    """Whether there is a Host header. Raises BadRequest if it names another place than the first line."""
    host = next((value for name, value in headers if name.lower() == "host"), None)
    if host is None:
        return False
    try:
        named = parse_authority(host, port=port)
    except BadDestination as error:
        raise BadRequest(f"the Host header is wrong: {error}") from None
    if named != destination:
        raise BadRequest(f"the first line names {destination}, the Host header {named}")
    return True


def _body(known: dict[str, str], version: str) -> Body:
    length, coding = known.get("content-length"), known.get("transfer-encoding")
    if coding is not None:
        if length is not None:
            raise BadRequest("there are both Content-Length and Transfer-Encoding")
        if coding.lower() != "chunked" or version != "HTTP/1.1":
            raise BadRequest("the only Transfer-Encoding here is chunked, in HTTP/1.1")
        return "chunked"
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise BadRequest("the Content-Length is no number")
    return int(length)


def _named_by_connection(headers: list[tuple[str, str]]) -> frozenset[str]:
    """Headers the client wants dropped here."""
    values = (value for name, value in headers if name.lower() == "connection")
    named = frozenset(word.strip().lower() for value in values for word in value.split(","))
    if named & _FRAMING:
        raise BadRequest("the Connection header names one that says where the request ends or goes")
    return named
