"""Programs the product does not hold, each with what is missing. `bench/escape.py --awaited` says which still get
out; one that is held moves to its category, with the layer that holds it."""

from __future__ import annotations

from bench.escape_suite.program import hostile

DISK = {
    # The disk is the host's; there is no bound on what a session may write to its workspace.
    "the workspace's disk": "fd = os.open('big', os.O_CREAT | os.O_RDWR); os.posix_fallocate(fd, 0, 2 << 30); os.remove('big'); escaped()"
}
NEW = {
    # What is not there when the session starts is guarded at the top of the workspace alone.
    "new instructions": "os.mkdir('other'); open('other/AGENTS.md', 'w').write('x'); escaped()"
}

PROGRAMS = [*hostile("awaited", "", "word", DISK), *hostile("awaited", "", "word", NEW)]
