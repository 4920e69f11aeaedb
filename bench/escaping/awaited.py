"""Programs the product does not hold yet, each with what is missing. `bench/escape.py --awaited` says which still get
out; one that is held moves to its category, with the layer that holds it."""

from __future__ import annotations

from bench.escaping.channel import FORGE
from bench.escaping.program import hostile

from pinfold.sandbox import Limits

SMALL = Limits(cell_s=20, memory_bytes=256 << 20)

ASIDE = {
    # A folder that holds a mount can be renamed; what is then made in its place is the program's own.
    "a submodule's folder put aside": "os.rename('sub', 'aside'); os.mkdir('sub'); open('sub/.git', 'w').write('gitdir: /tmp/mine')",
}
MEMORY = {
    # Bounded for each process's own data alone: no cgroup, no watchdog.
    "a file in memory": (
        "fd = os.memfd_create('x')\ntry:\n    for _ in range(60): os.write(fd, bytes(10 << 20))\n    escaped()\nexcept OSError as error: print(error)"
    ),
    "a shared mapping": (
        "import mmap\nm = mmap.mmap(-1, 600 << 20)\nfor n in range(0, 600 << 20, 1 << 20): m[n:n + (1 << 20)] = bytes(1 << 20)\nescaped()"
    ),
    "several processes": (
        "r, w = os.pipe(); made = []\nfor _ in range(4):\n    made.append(os.fork())\n    if made[-1] == 0:\n        b = bytearray(150 << 20); b[::4096] = bytes(38400); os.write(w, b'x'); time.sleep(20); os._exit(0)\n"
        "for _ in made: os.read(r, 1)\nfor pid in made: os.kill(pid, 9)\nescaped()"
    ),
    "its folders in memory": (
        "for path in ('/tmp/x', '/dev/shm/x'):\n    with open(path, 'wb') as f:\n        for _ in range(30): f.write(bytes(10 << 20))\nescaped()"
    ),
}
DISK = {
    "the workspace's disk": "fd = os.open('big', os.O_CREAT | os.O_RDWR); os.posix_fallocate(fd, 0, 2 << 30); os.remove('big'); escaped()",
}
NEW = {
    # What is not there when the session starts is not guarded.
    "a new repository": "os.makedirs('new/.git/hooks'); open('new/.git/config', 'w').write('x'); escaped()",
    "new instructions": "os.mkdir('other'); open('other/AGENTS.md', 'w').write('x'); escaped()",
}
WATCHES = {
    # Counted for the user outside as well, who may have 128; a limit of the session's own namespace would hold it.
    "every inotify instance the user may have": (
        "made = 0\nwhile made < 140 and libc.inotify_init1(0) >= 0: made += 1\nprint(made)\nif made > 100: escaped()"
    ),
}
FORGED = {
    # Requests are numbered one after the other, so an answer can be written before the question is asked.
    "an answer in advance": (
        FORGE
        + "forge({'id': 1, 'status': 'ok', 'value': 6})\ntime.sleep(0.05)\nforge({'id': 2, 'status': 'ok', 'value': 6})\ntime.sleep(0.05)"
    ),
}

PROGRAMS = [
    *hostile("awaited", "", "forged", FORGED, then="6 * 7", timeout_s=5),
    *hostile("awaited", "", "guarded", ASIDE),
    *hostile("awaited", "", "word", MEMORY, limits=SMALL),
    *hostile("awaited", "", "word", DISK),
    *hostile("awaited", "", "word", NEW),
    *hostile("awaited", "", "word", WATCHES),
]
