"""A name server that lies, and the product's own resolver and proxy that believe it. Run in namespaces of its own, as root there."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path

import anyio
from tests.net.listeners import EVIL, GOOD, INSIDE, why_not, world
from tests.net.proxy_client import answer_to, status_of

from pinfold.net import AllowList, Egress, Proxy, ProxyLimits

A, CNAME, AAAA = 1, 5, 28
SERVER = "127.0.0.53"
BAD = {
    "cname": [(CNAME, "two.example.net"), (A, INSIDE)],
    "home": [(CNAME, "localhost"), (A, "127.0.0.1")],
    "mixed": [(A, GOOD), (AAAA, "::1")],
    "last": [*((A, f"127.77.1.{at}") for at in range(1, 20)), (A, INSIDE)],
    "zero": [(A, "0.0.0.0")],
    "zero6": [(AAAA, "::")],
    "mapped": [(AAAA, f"::ffff:{INSIDE}")],
    "nat64": [(AAAA, "64:ff9b::7f00:42")],
    "sixtofour": [(AAAA, "2002:7f00:42::1")],
    "link": [(AAAA, "fe80::1")],
    "link4": [(A, "169.254.1.1")],
    "meta": [(A, "169.254.169.254")],
    "meta6": [(AAAA, "fd00:ec2::254")],
    "private": [(A, "10.0.0.1")],
    "inside": [(A, INSIDE)],
    "six": [(AAAA, "::1")],
}
asked: Counter[tuple[str, int]] = Counter()


def records(name: str, kind: int) -> list[tuple[int, str]] | None:
    """None: no such name."""
    label, _, domain = name.partition(".")
    times = asked[name, kind] = asked[name, kind] + 1
    if label == "good" and domain in ("example.net", "example.org"):
        return [(A, GOOD)]
    if domain != "example.net":
        return [(A, EVIL)]
    if label == "flip":
        return [(A, GOOD if times == 1 else INSIDE)]
    return BAD.get(label)


def reply(query: bytes) -> bytes:
    at, labels = 12, list[str]()
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode())
        at += 1 + size
    kind = int.from_bytes(query[at + 1 : at + 3])
    found = records(".".join(labels).lower(), kind)
    answers, owner = b"", b"\xc0\x0c"
    shown = [one for one in found or () if one[0] in (kind, CNAME)]
    for is_, value in shown:
        if is_ == CNAME:
            parts = [part.encode() for part in value.split(".")]
            data = b"".join(bytes((len(part),)) + part for part in parts) + b"\0"
        else:
            data = socket.inet_pton(socket.AF_INET if is_ == A else socket.AF_INET6, value)
        answers += owner + struct.pack(">HHIH", is_, 1, 0, len(data)) + data
        owner = data if is_ == CNAME else owner
    flags = 0x8180 if found is not None else 0x8183
    return query[:2] + struct.pack(">HHHHH", flags, 1, len(shown), 0, 0) + query[12 : at + 5] + answers


def serve(ready: threading.Event) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind((SERVER, 53))
        ready.set()
        while True:
            query, peer = line.recvfrom(4096)
            line.sendto(reply(query), peer)


def prepare() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (
            ("resolv.conf", f"nameserver {SERVER}\noptions timeout:2\n"),
            ("nsswitch.conf", "hosts: dns\n"),
        ):
            (made := Path(folder) / name).write_text(text)
            place = Path(f"/etc/{name}").resolve()
            if place.exists():
                subprocess.run(["mount", "--bind", str(made), str(place)], check=True)
    ready = threading.Event()
    threading.Thread(target=serve, args=(ready,), daemon=True).start()
    ready.wait()


async def main() -> None:
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with world() as places:
            listed = AllowList([f"good.example.org:{places.port}", f"*.example.net:{places.port}"])

            async def visit(name: str, path: Path) -> int:
                place = f"{name}:{places.port}"
                raw = f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n\r\n".encode()
                return status_of(await answer_to(path, raw))

            limits = ProxyLimits(handshake_s=20, idle_s=20)
            path = Path(folder) / "p"
            async with Proxy(Egress(listed, why_not=why_not), limits=limits).listening(path):
                found["good"] = [await visit("good.example.org", path), await visit("good.example.net", path)]
                found["flip"] = [await visit("flip.example.net", path) for _ in range(3)]
                found["lookups"] = asked["flip.example.net", A]
                found["bad"] = {name: await visit(f"{name}.example.net", path) for name in BAD}
                found["absent"] = await visit("nothing.example.net", path)
                found["unlisted"] = await visit("evil.org", path)
                found["heard of"] = asked["evil.org", A]
            found["breaches"] = await places.breaches()
            async with Proxy(Egress(listed, why_not=lambda _: None), limits=limits).listening(path):
                for name in ("inside", "cname", "home", "zero", "six", "mapped", "flip"):
                    await visit(f"{name}.example.net", path)
            found["control"] = sorted({one.rpartition(":")[0] for one in await places.breaches()})
    print(json.dumps(found))


if __name__ == "__main__":
    prepare()
    anyio.run(main)
