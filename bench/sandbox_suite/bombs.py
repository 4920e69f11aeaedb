"""Programs that take all they can get of one thing. Run them only inside a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

MEMORY = 256 << 20
"""Of the session as a whole."""
PROCESSES = 256
SCRATCH = 1 << 30
"""What /tmp and /dev/shm hold, each."""
WORKSPACE = 256 << 20
"""The size of the file system the benchmark gives as workspace."""
INODE_COUNT = MEMORY >> 10
"""An empty file takes about 1 KiB of the kernel's memory."""
DISK = 128 << 20
"""By which the workspace may grow."""
OUTPUT = 8 << 20
CELL_S = 3.0

Watched: TypeAlias = Literal["memory", "processes", "threads", "host memory", "disk", "told"]
"""`disk`: of the workspace's file system, which is its own. `told`: the program itself prints how far it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bomb:
    name: str
    code: str
    watched: Watched
    limit: int
    unit: Literal["MiB", ""] = ""


FORK = """
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""
THREADS = """
import threading, time
held = []
while True:
    try:
        thread = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
        thread.start()
        held.append(thread)
    except RuntimeError:
        time.sleep(0.001)
"""
MEMORY_ONE = """
held = []
while True:
    try:
        held.append(bytearray(b"x" * (4 << 20)))
    except MemoryError:
        pass
"""
MEMORY_MANY = f"""
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = []
        for _ in range({MEMORY * 3 // 4} // (4 << 20)):
            try:
                held.append(bytearray(b"x" * (4 << 20)))
            except MemoryError:
                break
        while True:
            time.sleep(1)
while True:
    time.sleep(1)
"""
SHARED = """
import mmap
area = mmap.mmap(-1, 8 << 30)
page = b"x" * (4 << 20)
for at in range(0, len(area), len(page)):
    area[at:at + len(page)] = page
"""
SPARSE = """
import os, mmap
fd = os.open("FOLDER/sparse", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 40)
area = mmap.mmap(fd, 1 << 36)
page = b"x" * (4 << 20)
for at in range(0, len(area), len(page)):
    area[at:at + len(page)] = page
    print(at + len(page), flush=True)
"""
FILL = """
import os
fd = os.open("FOLDER/fill", os.O_WRONLY | os.O_CREAT)
block, done = b"x" * (1 << 20), 0
while True:
    try:
        done += os.write(fd, block)
        print(done, flush=True)
    except OSError as error:
        os.close(fd)
        raise
"""
FALLOCATE = """
import os, time
fd = os.open("fallocated", os.O_WRONLY | os.O_CREAT)
os.posix_fallocate(fd, 0, 200 << 20)
time.sleep(60)
"""
SMALL_FILES = """
import itertools
for number in itertools.count():
    with open(f"small-{number}", "wb") as file:
        file.write(b"x" * (64 << 10))
"""
NAMELESS = """
import os, time
fd = os.open("nameless", os.O_WRONLY | os.O_CREAT)
os.unlink("nameless")
for _ in range(200):
    os.write(fd, b"x" * (1 << 20))
time.sleep(60)
"""
BEHIND = """
import subprocess
loop = "while :; do head -c 1000000 /dev/zero >> behind; done"
_ = subprocess.Popen(["sh", "-c", loop], start_new_session=True)
import time; time.sleep(60)
"""
INODES = """
import os
os.mkdir("/tmp/many")
done = 0
while True:
    os.close(os.open(f"/tmp/many/{done}", os.O_CREAT | os.O_WRONLY))
    done += 1
    if done % 1000 == 0:
        print(done, flush=True)
"""
DESCRIPTORS = """
import os, fcntl
held = []
while True:
    try:
        held += os.pipe()
        fcntl.fcntl(held[-1], 1031, 1 << 20)
        os.set_blocking(held[-1], False)
        os.write(held[-1], b"x" * (1 << 20))
    except BlockingIOError:
        pass
    except PermissionError:
        pass
    except OSError as error:
        print(len(held), flush=True)
        raise
"""
OUTPUT_FLOOD = """
import sys
block = "x" * (1 << 20)
while True:
    sys.stdout.write(block)
    sys.stderr.write(block)
"""
BURN = """
import os
for _ in range(64):
    if os.fork() == 0:
        os.setsid()
        while True:
            pass
while True:
    pass
"""
REPR = """
import sys
class Deep:
    def __repr__(self):
        return "x" * (64 << 20) + repr(Deep())
sys.setrecursionlimit(10**9)
try:
    raise ValueError("y" * (64 << 20))
except ValueError as error:
    for _ in range(1000):
        error = ValueError(str(error)[:1 << 20]).with_traceback(error.__traceback__)
Deep()
"""
RECURSION = """
import sys
sys.setrecursionlimit(10**9)
def down(*names):
    return down(*names, 1)
down()
"""

BOMBS = (
    Bomb(name="fork bomb, each in a session of its own", code=FORK, watched="processes", limit=PROCESSES),
    Bomb(name="thread flood", code=THREADS, watched="threads", limit=PROCESSES),
    Bomb(name="memory, one process", code=MEMORY_ONE, watched="memory", limit=MEMORY, unit="MiB"),
    Bomb(name="memory, 8 processes", code=MEMORY_MANY, watched="memory", limit=MEMORY, unit="MiB"),
    Bomb(name="memory, shared mapping", code=SHARED, watched="memory", limit=MEMORY, unit="MiB"),
    Bomb(
        name="sparse file in /tmp, mapped",
        code=SPARSE.replace("FOLDER", "/tmp"),
        watched="told",
        limit=SCRATCH,
        unit="MiB",
    ),
    Bomb(name="fill /tmp", code=FILL.replace("FOLDER", "/tmp"), watched="told", limit=SCRATCH, unit="MiB"),
    Bomb(name="fill /dev/shm", code=FILL.replace("FOLDER", "/dev/shm"), watched="told", limit=SCRATCH, unit="MiB"),
    Bomb(name="fill the workspace", code=FILL.replace("FOLDER", "."), watched="disk", limit=DISK, unit="MiB"),
    Bomb(name="one large file in the workspace", code=FALLOCATE, watched="disk", limit=DISK, unit="MiB"),
    Bomb(name="small files in the workspace", code=SMALL_FILES, watched="disk", limit=DISK, unit="MiB"),
    Bomb(name="a file without a name in the workspace", code=NAMELESS, watched="disk", limit=DISK, unit="MiB"),
    Bomb(name="left running in the workspace", code=BEHIND, watched="disk", limit=DISK, unit="MiB"),
    Bomb(name="empty files in /tmp without end", code=INODES, watched="told", limit=INODE_COUNT),
    Bomb(name="descriptors, each a full pipe", code=DESCRIPTORS, watched="told", limit=1024),
    Bomb(name="endless output", code=OUTPUT_FLOOD, watched="host memory", limit=8 * OUTPUT, unit="MiB"),
    Bomb(name="64 processes that burn", code=BURN, watched="processes", limit=PROCESSES),
    Bomb(name="endless repr of endless text", code=REPR, watched="memory", limit=MEMORY, unit="MiB"),
    Bomb(name="recursion without a limit", code=RECURSION, watched="memory", limit=MEMORY, unit="MiB"),
)
