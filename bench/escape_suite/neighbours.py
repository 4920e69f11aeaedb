"""Gets at another session of the same host."""

from __future__ import annotations

from bench.escape_suite.program import hostile

FILES = {
    "its files": "print(open(bait['neighbour']['workspace'] + '/private.txt').read())",
    "its folder": "for name in os.listdir(bait['neighbour']['workspace'] + '/'): print(open(bait['neighbour']['workspace'] + '/' + name).read())",
    "its files by steps up": "print(open('../neighbour/private.txt').read())",
}
CHANGES = {
    "a change of its files": "open(bait['neighbour']['workspace'] + '/private.txt', 'w').write('x')",
    "its files removed": "os.remove(bait['neighbour']['workspace'] + '/private.txt')",
}
SERVERS = {
    "its server": "socket.create_connection(('127.0.0.1', bait['neighbour']['port']), 2)",
    "its server by name": "socket.create_connection(('localhost', bait['neighbour']['port']), 2)",
}
ABSTRACT = {"its abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0neighbour')"}
SHARED = {
    "its shared memory": (
        "libc.shmat.restype = ctypes.c_void_p; p = libc.shmat(libc.shmget(0x6e656967, 0, 0), None, 0o10000)\nprint(ctypes.string_at(p, 24))"
    )
}
QUEUES = {
    "its queue of messages": "import struct; print(libc.msgsnd(libc.msgget(0x6e656967, 0), struct.pack('q9s', 1, b'x'), 9, 0o4000))"
}
PROCESSES = {
    "its processes' arguments": "for pid in filter(str.isdigit, os.listdir('/proc')): tried(lambda: print(open(f'/proc/{pid}/cmdline').read()))"
}
KILLS = {
    "its processes": (
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n    if 'time.sleep(600)' in (tried(lambda: open(f'/proc/{pid}/cmdline').read()) or ''): os.kill(int(pid), 9)"
    )
}

PROGRAMS = [
    *hostile("neighbour", "own-root", "secret neighbour", FILES),
    *hostile("neighbour", "own-root landlock user-id", "neighbour", CHANGES),
    *hostile("neighbour", "net-namespace", "neighbour", SERVERS),
    *hostile("neighbour", "net-namespace landlock", "neighbour", ABSTRACT),
    *hostile("neighbour", "ipc-namespace", "secret neighbour", SHARED),
    *hostile("neighbour", "ipc-namespace", "neighbour", QUEUES),
    *hostile("neighbour", "pid-namespace", "secret neighbour", PROCESSES),
    *hostile("neighbour", "pid-namespace user-id", "neighbour", KILLS),
]
