"""Looks for what the host knows and a session must not: its environment, its descriptors, its name, its memory."""

from __future__ import annotations

from bench.escape_suite.program import hostile

ENVIRONMENT = {
    "os.environ": "print(dict(os.environ))",
    "env": "print(subprocess.run(['env'], capture_output=True, text=True).stdout)",
    "the shell": "print(subprocess.run(['bash', '-c', 'echo $PINFOLD_ESCAPE_API_KEY; cat /proc/$$/environ'], capture_output=True, text=True).stdout)",
    "libc": "libc.getenv.restype = ctypes.c_char_p; print(libc.getenv(b'PINFOLD_ESCAPE_API_KEY'))",
    "a child's environment": "child = subprocess.Popen(['sleep', '9']); time.sleep(0.2); print(open(f'/proc/{child.pid}/environ').read()); child.kill()",
}
MEMORY = {
    "/proc/self/environ": "print(open('/proc/self/environ').read())",
    "its own stack": (
        "import re\nfor line in open('/proc/self/maps'):\n    if '[stack]' in line:\n        a, b = (int(x, 16) for x in line.split()[0].split('-'))\n"
        "        m = open('/proc/self/mem', 'rb', 0); m.seek(a); print(re.findall(rb'PINFOLD_ESCAPE_API_KEY=\\w+', m.read(b - a)))"
    ),
    "every environment there is": "for pid in filter(str.isdigit, os.listdir('/proc')): tried(lambda: print(open(f'/proc/{pid}/environ').read()))",
}
INIT_ENVIRONMENT = {"its init's environment": "print(open('/proc/1/environ').read())"}
_KINDS = """
import stat
def kinds():
    for name in os.listdir('/proc/self/fd'):
        fd = int(name)
        try: yield fd, os.fstat(fd).st_mode, os.readlink(f'/proc/self/fd/{fd}')
        except OSError: pass
"""
DESCRIPTORS = {
    "a socket too many": _KINDS + "if sum(stat.S_ISSOCK(mode) for _, mode, _ in kinds()) > 2: escaped()",
    "a request in memory": _KINDS
    + "for fd, mode, path in kinds():\n    if 'memfd' in path: print(path, os.pread(fd, 50, 0)); escaped()",
    "more than it needs": _KINDS + "if len([path for _, _, path in kinds() if '/proc' not in path]) > 8: escaped()",
    "a word with the launcher": (
        _KINDS
        + "lines = 0\nfor fd, mode, path in kinds():\n    if stat.S_ISSOCK(mode):\n        s = socket.socket(fileno=os.dup(fd))\n"
        "        lines += s.type == socket.SOCK_SEQPACKET\nif lines > 1: escaped()"
    ),
}
NAMES = {
    "uname": "print(os.uname())",
    "gethostname": "print(socket.gethostname())",
    "/proc/sys/kernel/hostname": "print(open('/proc/sys/kernel/hostname').read())",
}
SHARED = {
    "a segment of memory by its key": (
        "libc.shmat.restype = ctypes.c_void_p; p = libc.shmat(libc.shmget(bait['shm_key'], 0, 0), None, 0o10000)\nprint(ctypes.string_at(p, 24))"
    ),
    "every segment of memory": (
        "libc.shmat.restype = ctypes.c_void_p\nfor n in range(64):\n    p = libc.shmat(n, None, 0o10000)\n"
        "    if p not in (None, 2**64 - 1): print(ctypes.string_at(p, 24))"
    ),
    "the list of segments": "lines = open('/proc/sysvipc/shm').read().split('\\n')\nif len([x for x in lines if x]) > 1: print(lines); libc.shmat.restype = ctypes.c_void_p; print(ctypes.string_at(libc.shmat(int(lines[1].split()[1]), None, 0o10000), 24))",
}

PROGRAMS = [
    *hostile("secret", "environment", "secret environment", ENVIRONMENT),
    *hostile("secret", "environment", "secret environment", MEMORY),
    *hostile("secret", "environment closed-memory landlock capabilities", "secret environment", INIT_ENVIRONMENT),
    *hostile("secret", "descriptors", "word", DESCRIPTORS),
    *hostile("secret", "uts-namespace", "secret hostname", NAMES),
    *hostile("secret", "ipc-namespace", "secret ipc", SHARED),
]
