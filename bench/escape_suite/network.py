"""Reaches what listens outside, or sockets that have no business in a session."""

from __future__ import annotations

from bench.escape_suite.program import hostile

TCP = {
    "loopback": "socket.create_connection(('127.0.0.1', bait['tcp']), 2)",
    "another loopback address": "socket.create_connection(('127.9.9.9', bait['tcp']), 2)",
    "the zero address": "socket.create_connection(('0.0.0.0', bait['tcp']), 2)",
    "the metadata address": "socket.create_connection(('169.254.169.254', bait['tcp']), 2)",
    "the machine's own address": "socket.create_connection(('10.11.12.13', bait['tcp']), 2)",
    "a mapped address": "s = socket.socket(socket.AF_INET6); s.settimeout(2); s.connect(('::ffff:127.0.0.1', bait['tcp']))",
    "urllib": "import urllib.request; tried(lambda: urllib.request.urlopen(f\"http://127.0.0.1:{bait['tcp']}/\", timeout=0.3))",
    "bash": "subprocess.run(['bash', '-c', f\"echo x > /dev/tcp/127.0.0.1/{bait['tcp']}\"])",
    "asyncio": "import asyncio; _ = await asyncio.wait_for(asyncio.open_connection('127.0.0.1', bait['tcp']), 2)",
    "a call to connect by number": (
        "import struct\ns = socket.socket(); print(syscall('connect', s.fileno(), struct.pack('!2s HI8x', b'\\x02\\0', bait['tcp'], 0x7f000001), 16))"
    ),
    "fast open": "s = socket.socket(); tried(lambda: s.sendto(b'x', 0x20000000, ('127.0.0.1', bait['tcp'])))",
    "every port that is open": (
        "for port in range(bait['tcp'] - 20, bait['tcp'] + 20):\n    with socket.socket() as s: s.settimeout(0.1); s.connect_ex(('127.0.0.1', port))"
    ),
}
OTHERS = {
    "knock tcp6": {"loopback, version 6": "socket.create_connection(('::1', bait['tcp6']), 2)"},
    "knock udp": {
        "a datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', bait['udp']))",
        "many datagrams at once": (
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', bait['udp'])); s.sendmsg([b'x', b'y'])"
        ),
        "a broadcast": (
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n"
            "s.sendto(b'x', ('127.0.0.1', bait['udp']))"
        ),
    },
}
ABSTRACT = {
    "an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0' + bait['abstract'])",
    "an abstract datagram": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0' + bait['abstract'] + '-d')",
}
PATHS = {
    "a socket file": "socket.socket(socket.AF_UNIX).connect(bait['socket'])",
    "a socket file for datagrams": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', bait['datagrams'])",
    "a socket file through a link": "socket.socket(socket.AF_UNIX).connect('folder.link/host.sock')",
    "a descriptor handed out": (
        "s = socket.socket(socket.AF_UNIX); s.connect(bait['socket']); socket.send_fds(s, [b'x'], [os.open('.', os.O_RDONLY)])"
    ),
}
WORKSPACE = {
    "the host's socket in the workspace": "socket.socket(socket.AF_UNIX).connect('host.sock')",
    "the host's socket by its whole path": "socket.socket(socket.AF_UNIX).connect(os.getcwd() + '/host.sock')",
}
FAMILIES = {
    "vsock": "reaches('socket', 40, 1, 0)",
    "netlink": "reaches('socket', 16, 3, 0)",
    "the kernel's events": "reaches('socket', 16, 3, 15)",
    "audit": "reaches('socket', 16, 3, 9)",
    "an unknown kind": "reaches('socket', 2, 77, 0)",
    "a pair of netlink sockets": "reaches('socketpair', 16, 3, 0, ctypes.create_string_buffer(8))",
    "netlink by datagrams": "reaches('socket', 16, 2, 0)",
    "a protocol the kernel would load": "reaches('socket', 2, 1, 132)",
    "a protocol by its kind": "reaches('socket', 2, 5, 0)",
    "tunnels": "reaches('socket', 10, 2, 115)",
    "shared memory over the network": "reaches('socket', 2, 1, 256)",
}
POWERS = {
    "raw packets": "reaches('socket', 2, 3, 1)",
    "raw packets, version 6": "reaches('socket', 10, 3, 58)",
    "packets of the link": "reaches('socket', 17, 3, 0x300)",
}
INTERFACES = {
    "an address for itself": (
        "import fcntl, struct\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "fcntl.ioctl(s, 0x8916, struct.pack('16sHH4s8x8x', b'lo', 2, 0, bytes([127, 0, 0, 1]))); escaped()"
    ),
    "loopback taken down": (
        "import fcntl, struct\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'lo', 0)); escaped()"
    ),
    "a mark on its packets": "socket.socket().setsockopt(socket.SOL_SOCKET, 36, 7); escaped()",
    "any address as its own": "socket.socket().setsockopt(socket.SOL_IP, 19, 1); escaped()",
}

PROGRAMS = [
    *hostile("net", "net-namespace", "knock tcp", TCP),
    *(program for shows, sources in OTHERS.items() for program in hostile("net", "net-namespace", shows, sources)),
    *hostile("net", "net-namespace landlock", "knock abstract", ABSTRACT),
    *hostile("net", "own-root", "knock", PATHS),
    *hostile("net", "masks", "knock workspace", WORKSPACE),
    *hostile("net", "filter", "word", FAMILIES),
    *hostile("net", "filter capabilities", "word", POWERS),
    *hostile("net", "capabilities", "word", INTERFACES),
]
