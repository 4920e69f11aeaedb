"""Requests that want to go where they may not. `P` is the port of every place, `Q` one that is not listed.

Listed are `good.example.org:P` and `*.example.net:P`.
"""

from __future__ import annotations

from collections.abc import Iterator

HOSTS = {
    # names that look listed
    "not listed": "evil.org",
    "listed name as a subdomain of another": "good.example.org.evil.org",
    "listed name as the end of another": "evilgood.example.org",
    "listed name with a hyphen before": "evil-good.example.org",
    "domain itself for its subdomains": "example.net",
    "end of the domain without the dot": "evilexample.net",
    "domain in front": "example.net.evil.org",
    "subdomain of an exact name": "a.good.example.org",
    "parent of an exact name": "example.org",
    "star as a host": "*.example.net",
    "star alone": "*",
    "only the end": ".example.net",
    "dot before": ".good.example.org",
    "two dots inside": "evil..example.net",
    "two dots at the end": "good.example.org..",
    "case of another": "EVIL.ORG",
    "another with a last dot": "evil.org.",
    "underscore": "evil_.example.net",
    "hyphen first": "-evil.example.net",
    "hyphen last": "evil-.example.net",
    "label too long": f"{'a' * 64}.example.net",
    "name too long": f"{'a.' * 130}example.net",
    # bytes that end a name for somebody else
    "NUL before the listed end": "evil.org\0.example.net",
    "NUL after": "evil.org\0",
    "encoded NUL": "evil.org%00.example.net",
    "tab": "evil.org\t.example.net",
    "space": "evil.org .example.net",
    "carriage return": "evil.org\r.example.net",
    "line feed": "evil.org\n.example.net",
    "both": "evil.org\r\n.example.net",
    "vertical tab": "evil.org\v.example.net",
    "escape": "evil.org\x1b.example.net",
    "DEL": "evil.org\x7f.example.net",
    "hash": "evil.org#.example.net",
    "encoded hash": "evil.org%23.example.net",
    "question mark": "evil.org?.example.net",
    "slash": "evil.org/.example.net",
    "backslash": "evil.org\\.example.net",
    "semicolon": "evil.org;.example.net",
    "comma": "evil.org,.example.net",
    "quote": 'evil.org".example.net',
    "bar": "evil.org|.example.net",
    "dollar": "evil.org$.example.net",
    "encoded dot": "evil%2eorg",
    "encoded letter": "%65vil.org",
    "encoded slash": "evil.org%2f.example.net",
    "encoded at": "good.example.org%40evil.org",
    "encoded twice": "evil.org%252e.example.net",
    # user information
    "listed name as user": "good.example.org@evil.org",
    "listed name as user and password": "good.example.org:pw@evil.org",
    "listed name as user, twice": "a@good.example.org@evil.org",
    "other name as user": "evil.org@good.example.org",
    "backslash and user": "good.example.org\\@evil.org",
    "empty user": "@evil.org",
    # other alphabets
    "fullwidth letters": "\uff45vil.org",
    "fullwidth dot": "evil\u3002org",
    "ideographic dot before the listed end": "evil.org\uff0eexample.net",
    "circled letters": "\u24d4vil.org",
    "sharp s": "straße.example.net",
    "Cyrillic a": "ex\u0430mple.net",
    "soft hyphen": "ev\xadil.org",
    "zero width joiner": "ev\u200dil.org",
    "right to left": "\u202eevil.org",
    "Kelvin sign": "\u212aelvin.example.net",
    "dotless i": "ev\u0131l.org",
    "ligature": "\ufb01le.example.net",
    "raw latin byte": "ev\xeel.example.net",
    # addresses of this machine, however they are written
    "loopback": "127.0.0.1",
    "other loopback": "127.0.0.66",
    "loopback name": "localhost",
    "loopback name with a dot": "localhost.",
    "unspecified": "0.0.0.0",
    "zero": "0",
    "octal": "0177.0.0.1",
    "octal, longer": "00000177.0.0.1",
    "octal in the last": "127.0.0.0102",
    "hexadecimal": "0x7f.0.0.1",
    "hexadecimal whole": "0x7f000001",
    "hexadecimal, capital": "0X7F.1",
    "hexadecimal, empty": "0x",
    "decimal whole": "2130706433",
    "two parts": "127.1",
    "three parts": "127.0.1",
    "mixed": "0x7f.0.0.01",
    "five parts": "127.0.0.0.1",
    "too large a part": "383.0.0.1",
    "negative": "-127.0.0.1",
    "plus": "+127.0.0.1",
    "address with a dot": "127.0.0.1.",
    "address with a listed end by NUL": "127.0.0.1\0.example.net",
    "fullwidth digits": "\uff11\uff12\uff17.0.0.1",
    "Arabic digits": "\u0661\u0662\u0667.0.0.1",
    "superscript": "127.0.0.\xb9",
    "octal of metadata": "0251.0376.0251.0376",
    "metadata": "169.254.169.254",
    "metadata in decimal": "2852039166",
    "metadata of another cloud": "100.100.100.200",
    "metadata of containers": "169.254.170.2",
    "private 10": "10.0.0.1",
    "private 172": "172.16.0.1",
    "private 192": "192.168.0.1",
    "carrier": "100.64.0.1",
    "multicast": "224.0.0.1",
    "broadcast": "255.255.255.255",
    "documentation": "192.0.2.1",
    "unlisted public": "127.77.0.9",
    "listed host's own address": "127.77.0.1",
    # version 6
    "v6 loopback": "[::1]",
    "v6 loopback, long": "[0:0:0:0:0:0:0:1]",
    "v6 loopback, padded": "[0000::0001]",
    "v6 unspecified": "[::]",
    "v6 mapped": "[::ffff:127.0.0.66]",
    "v6 mapped, hexadecimal": "[::ffff:7f00:42]",
    "v6 mapped, long": "[0:0:0:0:0:ffff:7f00:0042]",
    "v6 compatible": "[::127.0.0.66]",
    "v6 compatible, hexadecimal": "[::7f00:42]",
    "v6 translated": "[::ffff:0:127.0.0.66]",
    "v6 NAT64": "[64:ff9b::7f00:42]",
    "v6 local NAT64": "[64:ff9b:1::7f00:42]",
    "v6 6to4": "[2002:7f00:42::1]",
    "v6 Teredo": "[2001:0:7f00:42::1]",
    "v6 zone": "[fe80::1%lo]",
    "v6 encoded zone": "[fe80::1%25lo]",
    "v6 link-local": "[fe80::1]",
    "v6 private": "[fd00::1]",
    "v6 metadata": "[fd00:ec2::254]",
    "v6 multicast": "[ff02::1]",
    "v6 site-local": "[fec0::1]",
    "v6 open bracket": "[::1",
    "v6 closed bracket": "::1]",
    "v6 no brackets": "::1",
    "v6 two brackets": "[[::1]]",
    "v6 and more": "[::1]evil.org",
    "v6 and a listed end": "[::1].example.net",
    "v6 empty": "[]",
    "v6 future": "[v1.fe80::1]",
    "name in brackets": "[evil.org]",
    # listed, but leading elsewhere
    "listed name that leads to loopback": "inside.example.net",
    "listed name that leads to loopback too": "mixed.example.net",
    "listed name that leads to a mapped address": "mapped.example.net",
    "listed name that leads to metadata": "meta.example.net",
    "listed name that leads to a zone": "zone.example.net",
    "listed, capital, that leads to loopback": "INSIDE.Example.NET",
    "listed, last dot, that leads to loopback": "inside.example.net.",
}
PORTS = {
    "another port": "good.example.org:Q",
    "another port, padded": "good.example.org:0Q",
    "port with plus": "good.example.org:+Q",
    "port with sign": "good.example.org:-Q",
    "port with space": "good.example.org: Q",
    "port in hexadecimal": "good.example.org:0x50",
    "port too large": "good.example.org:65536",
    "port that wraps": "good.example.org:13107200P",
    "port zero": "good.example.org:0",
    "port empty": "good.example.org:",
    "two ports": "good.example.org:P:Q",
    "two ports, other first": "good.example.org:Q:P",
    "port with NUL": "good.example.org:Q\0:P",
    "port in other digits": "good.example.org:\u0668\u0660",
    "port and user": "good.example.org:P@evil.org:P",
    "port and path": "good.example.org:P/@evil.org:P",
}
GOOD_LINE = b"http://good.example.org:P/ HTTP/1.1\r\nHost: good.example.org:P\r\n"
INNER = b"GET http://evil.org:P/SMUGGLED HTTP/1.1\r\nHost: evil.org:P\r\n\r\n"
RAW = {
    # who is asked for
    "Host is another": b"GET http://good.example.org:P/ HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "Host is another, target is not listed": b"GET http://evil.org:P/ HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "two Hosts": b"GET " + GOOD_LINE + b"Host: evil.org:P\r\n\r\n",
    "two Hosts, other first": b"GET http://good.example.org:P/ HTTP/1.1\r\nHost: evil.org:P\r\nHost: good.example.org:P\r\n\r\n",
    "Host with a space before the colon": b"GET " + GOOD_LINE + b"Host : evil.org:P\r\n\r\n",
    "Host with a list": b"GET http://good.example.org:P/ HTTP/1.1\r\nHost: good.example.org:P, evil.org:P\r\n\r\n",
    "Host with user": b"GET http://good.example.org:P/ HTTP/1.1\r\nHost: a@good.example.org:P\r\n\r\n",
    "Host on another port": b"GET http://good.example.org:P/ HTTP/1.1\r\nHost: good.example.org:Q\r\n\r\n",
    "no Host": b"GET http://evil.org:P/ HTTP/1.1\r\n\r\n",
    "origin form": b"GET /SMUGGLED HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "origin form, two slashes": b"GET //evil.org:P/SMUGGLED HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "authority form without CONNECT": b"GET evil.org:P HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "CONNECT with a URL": b"CONNECT http://evil.org:P/ HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "CONNECT whose Host is listed": b"CONNECT evil.org:P HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "CONNECT whose Host is another": b"CONNECT good.example.org:P HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "CONNECT in small letters": b"connect evil.org:P HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "CONNECT with a path": b"CONNECT evil.org:P/good.example.org:P HTTP/1.1\r\n\r\n",
    "CONNECT with two targets": b"CONNECT good.example.org:P evil.org:P HTTP/1.1\r\n\r\n",
    "CONNECT with a body": b"CONNECT good.example.org:P HTTP/1.1\r\nContent-Length: 5\r\n\r\n" + INNER,
    "https in absolute form": b"GET https://evil.org:P/ HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "ftp": b"GET ftp://evil.org:P/ HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "file": b"GET file:///etc/passwd HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "gopher": b"GET gopher://evil.org:P/_SMUGGLED HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "scheme with a newline": b"GET ht\ntp://evil.org:P/ HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "backslashes": b"GET http:\\\\evil.org:P\\ HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "one slash": b"GET http:/evil.org:P/ HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "three slashes": b"GET http:///evil.org:P/ HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "URL in a URL": b"GET http://http://evil.org:P/ HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    # where a request ends
    "length and chunks": b"POST "
    + GOOD_LINE
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + INNER,
    "chunks and length": b"POST "
    + GOOD_LINE
    + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
    + INNER,
    "two lengths": b"POST " + GOOD_LINE + b"Content-Length: 0\r\nContent-Length: 70\r\n\r\n" + INNER,
    "two equal lengths": b"POST " + GOOD_LINE + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + INNER,
    "length list": b"POST " + GOOD_LINE + b"Content-Length: 0, 70\r\n\r\n" + INNER,
    "length with plus": b"POST " + GOOD_LINE + b"Content-Length: +0\r\n\r\n" + INNER,
    "length in hexadecimal": b"POST " + GOOD_LINE + b"Content-Length: 0x0\r\n\r\n" + INNER,
    "length negative": b"POST " + GOOD_LINE + b"Content-Length: -1\r\n\r\n" + INNER,
    "length with underscore": b"POST " + GOOD_LINE + b"Content-Length: 1_0\r\n\r\n" + INNER,
    "length with a space before the colon": b"POST " + GOOD_LINE + b"Content-Length : 0\r\n\r\n" + INNER,
    "chunked in capitals, twice": b"POST "
    + GOOD_LINE
    + b"Transfer-Encoding: Chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"
    + INNER,
    "chunked by another name": b"POST " + GOOD_LINE + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + INNER,
    "chunked and identity": b"POST " + GOOD_LINE + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + INNER,
    "chunked twice": b"POST " + GOOD_LINE + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + INNER,
    "chunked after a vertical tab": b"POST " + GOOD_LINE + b"Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n" + INNER,
    "chunked in HTTP/1.0": b"POST http://good.example.org:P/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + INNER,
    "folded header": b"POST " + GOOD_LINE + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + INNER,
    "folded first header": b"GET http://good.example.org:P/ HTTP/1.1\r\n Host: good.example.org:P\r\n\r\n",
    "bare line feed": b"GET " + GOOD_LINE + b"X: a\nHost: evil.org:P\r\n\r\n",
    "bare carriage return": b"GET " + GOOD_LINE + b"X: a\rHost: evil.org:P\r\n\r\n",
    "only line feeds": b"GET http://evil.org:P/ HTTP/1.1\nHost: evil.org:P\n\n",
    "NUL in a header": b"GET " + GOOD_LINE + b"X: a\0b\r\n\r\n",
    "no name": b"GET " + GOOD_LINE + b": evil.org\r\n\r\n",
    "no colon": b"GET " + GOOD_LINE + b"evil.org\r\n\r\n",
    "length dropped by Connection": b"POST "
    + GOOD_LINE
    + b"Connection: content-length\r\nContent-Length: 70\r\n\r\n"
    + INNER,
    "Host dropped by Connection": b"GET " + GOOD_LINE + b"Connection: close, host\r\n\r\n",
    "second request behind the first": b"GET " + GOOD_LINE + b"\r\n" + INNER,
    "second request behind a body": b"POST " + GOOD_LINE + b"Content-Length: 2\r\n\r\nhi" + INNER,
    "second request behind chunks": b"POST "
    + GOOD_LINE
    + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    + INNER,
    "chunk size with plus": b"POST " + GOOD_LINE + b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + INNER,
    "chunk size with 0x": b"POST " + GOOD_LINE + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + INNER,
    "chunk size negative": b"POST " + GOOD_LINE + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + INNER,
    "chunk ends with half an end": b"POST " + GOOD_LINE + b"Transfer-Encoding: chunked\r\n\r\n2\nhi\n0\n\n" + INNER,
    "chunk that is longer than it says": b"POST "
    + GOOD_LINE
    + b"Transfer-Encoding: chunked\r\n\r\n1\r\nhi\r\n0\r\n\r\n"
    + INNER,
    "request in a trailer": b"POST " + GOOD_LINE + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: SMUGGLED\r\n\r\n",
    "request in a chunk extension": b"POST " + GOOD_LINE + b"Transfer-Encoding: chunked\r\n\r\n0;SMUGGLED\r\n\r\n",
    "Upgrade": b"GET " + GOOD_LINE + b"Connection: Upgrade\r\nUpgrade: SMUGGLED\r\n\r\n",
    "CRLF in the path": b"GET http://good.example.org:P/\r\nHost: evil.org HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "HTTP/0.9": b"GET http://evil.org:P/\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET http://evil.org:P/ HTTP/1.2\r\nHost: evil.org:P\r\n\r\n",
    "two spaces": b"GET  http://evil.org:P/ HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "tab for space": b"GET\thttp://evil.org:P/\tHTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "empty lines first": b"\r\n\r\nGET http://evil.org:P/ HTTP/1.1\r\nHost: evil.org:P\r\n\r\n",
    "101 headers": b"GET http://evil.org:P/ HTTP/1.1\r\n" + b"X: a\r\n" * 101 + b"\r\n",
    "endless head": b"GET http://evil.org:P/ HTTP/1.1\r\nX: " + b"a" * 70_000,
    # not HTTP at all
    "SOCKS4": b"\x04\x01\x00\x50\x7f\x00\x00\x42\x00",
    "SOCKS4a": b"\x04\x01\x00\x50\x00\x00\x00\x01\x00evil.org\x00",
    "SOCKS5": b"\x05\x01\x00",
    "SOCKS5 with a name": b"\x05\x01\x00\x05\x01\x00\x03\x08evil.org\x00\x50",
    "SOCKS5 with a NUL": b"\x05\x01\x00\x05\x01\x00\x03\x14evil.org\x00.example.net\x00\x50",
    "TLS": b"\x16\x03\x01\x00\x05hello",
    "haproxy": b"PROXY TCP4 127.0.0.1 127.0.0.66 1 80\r\nGET http://evil.org:P/ HTTP/1.1\r\n\r\n",
    "haproxy, binary": b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c",
}

HARMLESS_OUTSIDE = frozenset(
    ("Upgrade", "second request behind the first", "second request behind a body", "second request behind chunks")
)
"""Of these the outer request is a good one; only what it carries must not arrive."""


def attacks(port: int, other_port: int) -> Iterator[tuple[str, bytes]]:
    """Each by name, as the bytes a program inside would send."""

    for name, host in HOSTS.items():
        place = host.encode() + b":%d" % port
        yield f"tunnel: {name}", b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (place, place)
        yield f"request: {name}", b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (place, place)
    for name, host in PORTS.items():
        place = host.replace("P", f"{port}").replace("Q", f"{other_port}").encode()
        yield f"tunnel: {name}", b"CONNECT %s HTTP/1.1\r\n\r\n" % place
        yield f"request: {name}", b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (place, place)
    for name, raw in RAW.items():
        yield name, raw.replace(b":P", b":%d" % port).replace(b":Q", b":%d" % other_port)
