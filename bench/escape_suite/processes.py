"""Touches processes outside, outlives the session, or takes more of the machine than it is given. Every bomb counts
what it takes and stops by itself."""

from __future__ import annotations

from bench.escape_suite.program import hostile

from pinfold.sandbox import Limits

KILLS = {
    "kill": "os.kill(bait['victim'], 9)",
    "a signal it would heed": "os.kill(bait['victim'], 10)",
    "the shell's kill": "subprocess.run(['bash', '-c', f\"kill -9 {bait['victim']}\"])",
    "tgkill": "print(libc.tgkill(bait['victim'], bait['victim'], 9))",
    "sigqueue": "print(libc.sigqueue(bait['victim'], 9, 0))",
    "by its group": "os.killpg(os.getpgid(bait['victim']), 0); os.kill(bait['victim'], 15)",
}
LOOKS = {
    "its arguments": "print(open(f\"/proc/{bait['victim']}/cmdline\").read())",
    "ps": "print(subprocess.run(['ps', 'axww'], capture_output=True, text=True).stdout)",
    "every process there is": (
        "for pid in filter(str.isdigit, os.listdir('/proc')): tried(lambda: print(open(f'/proc/{pid}/cmdline').read()))"
    ),
}
TOUCHES = {
    "the host exists": "os.kill(bait['victim'], 0); escaped()",
    # Not below what it has: under `nice` that would be refused for another reason.
    "its priority": "who = (os.PRIO_PROCESS, bait['victim']); os.setpriority(*who, max(5, os.getpriority(*who))); escaped()",
    "its processors": "os.sched_setaffinity(bait['victim'], os.sched_getaffinity(bait['victim'])); escaped()",
    "its policy": "os.sched_setscheduler(bait['victim'], os.SCHED_BATCH, os.sched_param(0)); escaped()",
}
SEES = {
    "its group's number": "os.getpgid(bait['victim']); escaped()",
    "a handle on it": "os.pidfd_open(bait['victim']); escaped()",
    "its memory's map, by name": "os.stat(f\"/proc/{bait['victim']}/maps\"); escaped()",
}
_WAITS = "open('waiting', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.02)\nopen('late', 'w').close()\nos._exit(0)"
OUTLIVES = {
    "a daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
    + "\n".join(f"    {line}" for line in _WAITS.split("\n"))
    + "\nwhile not os.path.exists('waiting'): time.sleep(0.01)",
    "a daemon that heeds no signal": "import signal\nif os.fork() == 0:\n    os.setsid()\n    for n in range(1, 32):\n        if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n"
    + "\n".join(f"    {line}" for line in _WAITS.split("\n"))
    + "\nwhile not os.path.exists('waiting'): time.sleep(0.01)",
    "nohup": (
        "subprocess.Popen(['nohup', 'bash', '-c', 'touch waiting; until test -e go; do sleep 0.02; done; touch late'], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\n"
        "while not os.path.exists('waiting'): time.sleep(0.01)"
    ),
    "a program of its own": (
        f"code = 'import os, time\\n' + {_WAITS!r}\nsubprocess.Popen([sys.executable, '-c', code], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\n"
        "while not os.path.exists('waiting'): time.sleep(0.01)"
    ),
}
TAKES = {
    "processes": (
        "made = []\ntry:\n    while len(made) < 300:\n        pid = os.fork()\n        if pid == 0: time.sleep(60); os._exit(0)\n        made.append(pid)\n"
        "except OSError as error: print(error)\nfor pid in made: os.kill(pid, 9)\nif len(made) == 300: escaped()"
    ),
    "threads": (
        "import threading\nstop = threading.Event(); made = 0\ntry:\n    while made < 300: threading.Thread(target=stop.wait, daemon=True).start(); made += 1\n"
        "except RuntimeError as error: print(error)\nstop.set()\nif made == 300: escaped()"
    ),
    "open files": "files = []\ntry:\n    while len(files) < 1100: files.append(open('/dev/null'))\nexcept OSError as error: print(error)\nif len(files) == 1100: escaped()",
    "memory by mapping": "import mmap\ntry:\n    m = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); escaped()\nexcept OSError as error: print(error)",
    "memory in small pieces": "try:\n    parts = [bytes(1 << 20) for _ in range(1000)]; escaped()\nexcept MemoryError as error: print(error)",
    "memory that is never swapped": "if syscall('mlock', ctypes.addressof(ctypes.create_string_buffer(9)), 9)[0] == 0: escaped()",
    "core dumps": "import resource\nif resource.getrlimit(resource.RLIMIT_CORE)[1] != 0: escaped()",
    "higher limits": "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (2000, 2000)); escaped()",
    "higher limits for its child": "import resource\nchild = os.fork()\nif child == 0: time.sleep(5); os._exit(0)\nresource.prlimit(child, resource.RLIMIT_NOFILE, (5000, 5000)); escaped()",
}
FILLS = {
    "/tmp": "fd = os.open('/tmp/big', os.O_CREAT | os.O_RDWR); os.posix_fallocate(fd, 0, 1200 << 20); escaped()",
    "/dev/shm": "fd = os.open('/dev/shm/big', os.O_CREAT | os.O_RDWR); os.posix_fallocate(fd, 0, 1200 << 20); escaped()",
}
MEMORY = {
    "a file in memory": "fd = os.memfd_create('x')\nfor _ in range(80): os.write(fd, bytes(10 << 20))\ntime.sleep(0.5)\nescaped()",
    "a shared mapping": (
        "import mmap\nm = mmap.mmap(-1, 800 << 20)\nfor n in range(0, 800 << 20, 1 << 20): m[n:n + (1 << 20)] = bytes(1 << 20)\ntime.sleep(0.5)\nescaped()"
    ),
    "memory of several processes": (
        "r, w = os.pipe(); made = []\nfor _ in range(4):\n    made.append(os.fork())\n    if made[-1] == 0:\n        b = bytearray(200 << 20); b[::4096] = bytes(51200); os.write(w, b'x'); time.sleep(20); os._exit(0)\n"
        "for _ in made: os.read(r, 1)\ntime.sleep(0.5)\nfor pid in made: os.kill(pid, 9)\nescaped()"
    ),
    "its folders in memory": (
        "for path in ('/tmp/x', '/dev/shm/x'):\n    with open(path, 'wb') as f:\n        for _ in range(40): f.write(bytes(10 << 20))\ntime.sleep(0.5)\nescaped()"
    ),
}
"""All of it together: each has time to be noticed, which is all that is claimed."""
AT_ONCE = {
    "memory of one process": "try:\n    b = bytearray(1 << 30); escaped()\nexcept MemoryError as error: print(error)"
}
WATCHES = {
    "every inotify instance the user may have": (
        "made = 0\nwhile made < 140 and libc.inotify_init1(0) >= 0: made += 1\nprint(made)\nif made > 64: escaped()"
    )
}
_END = "end = time.monotonic() + 2.2\n"
STAYS = {
    "an endless loop": _END + "while time.monotonic() < end: pass",
    "an interrupt ignored": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    + _END
    + "while time.monotonic() < end: pass",
    "an interrupt caught": _END
    + "while time.monotonic() < end:\n    try:\n        while time.monotonic() < end: pass\n    except KeyboardInterrupt: pass",
    "signals blocked": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
    + _END
    + "while time.monotonic() < end: time.sleep(0.1)",
    "a sleep": "time.sleep(2.2)",
    "a long call without a check": "libc.usleep(900_000); libc.usleep(900_000); libc.usleep(400_000)",
    "a child it waits for": "subprocess.run(['sleep', '2.2'])",
    "a child in a session of its own": "subprocess.Popen(['sleep', '2.2'], start_new_session=True).wait()",
}
FLOODS = {
    "stdout": "for _ in range(40): sys.stdout.write('x' * 1_000_000)",
    "stderr": "for _ in range(40): sys.stderr.write('x' * 1_000_000)",
    "a child's output": "subprocess.run('yes | head -c 40000000', shell=True)",
}
SMALL = Limits(cell_s=20, memory_bytes=512 << 20, output_bytes=1 << 20)

PROGRAMS = [
    *hostile("process", "pid-namespace user-id", "victim", KILLS),
    *hostile("process", "pid-namespace user-id", "word", TOUCHES),
    *hostile("process", "pid-namespace", "secret argv", LOOKS),
    *hostile("process", "pid-namespace", "word", SEES),
    *hostile("process", "pid-namespace", "late", OUTLIVES),
    *hostile("takes", "limits", "word", TAKES, limits=SMALL),
    *hostile("takes", "memory-bound", "word", MEMORY, limits=SMALL),
    *hostile("takes", "limits memory-bound", "word", AT_ONCE, limits=SMALL),
    *hostile("takes", "watch-bound", "word", WATCHES),
    *hostile("takes", "sizes", "word", FILLS),
    *hostile("takes", "deadline", "overtime", STAYS, timeout_s=0.4),
    *hostile("takes", "bounded-output", "flood", FLOODS, limits=SMALL),
]
