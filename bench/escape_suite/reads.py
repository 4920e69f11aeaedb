"""Reads what lies outside, in every way a Python program has."""

from __future__ import annotations

from bench.escape_suite.program import hostile
from bench.escape_suite.scene import READABLE

PLACES = {f"open {path}": f"print(open({path!r}).read())" for path in READABLE}

WAYS = {
    "os.open and read": "print(os.read(os.open(bait['secret'], os.O_RDONLY), 100))",
    "open through a link of the workspace": "print(open('plain.link').read())",
    "open through a linked folder": "print(open('folder.link/notes.txt').read())",
    "a link made now": "os.symlink(bait['secret'], 'mine'); print(open('mine').read())",
    "many steps up": "print(open('../' * 40 + bait['secret'][1:]).read())",
    "a path through /proc/self/root": "print(open('/proc/self/root' + bait['secret']).read())",
    "a path through /proc/self/cwd": "print(open('/proc/self/cwd/../..' + bait['secret']).read())",
    "a path through /dev/fd": "here = os.open('/', os.O_PATH); print(open(f'/dev/fd/{here}' + bait['secret']).read())",
    "openat from a folder": "here = os.open('..', os.O_RDONLY); print(os.read(os.open('../' + bait['secret'][1:], os.O_RDONLY, dir_fd=here), 99))",
    "mmap": "import mmap\nwith open(bait['secret'], 'rb') as f: print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])",
    "sendfile": "f = os.open(bait['secret'], os.O_RDONLY); r, w = os.pipe(); os.sendfile(w, f, 0, 99); print(os.read(r, 99))",
    "splice": "f = os.open(bait['secret'], os.O_RDONLY); r, w = os.pipe(); os.splice(f, w, 99); print(os.read(r, 99))",
    "readv": "f = os.open(bait['secret'], os.O_RDONLY); b = bytearray(99); os.preadv(f, [b], 0); print(bytes(b))",
    "libc's fopen": "libc.fopen.restype = ctypes.c_void_p; f = libc.fopen(bait['secret'].encode(), b'r'); b = ctypes.create_string_buffer(99); print(f and libc.fgets(b, 99, ctypes.c_void_p(f)), b.value)",
    "a call to openat by number": "fd, e = syscall('openat', -100, bait['secret'].encode(), 0); print(os.read(fd, 99) if fd >= 0 else e)",
    "the old open call": "fd, e = syscall('open', bait['secret'].encode(), 0); print(os.read(fd, 99) if fd >= 0 else e)",
    "cat": "print(subprocess.run(['cat', bait['secret']], capture_output=True, text=True))",
    "a shell's redirection": "print(subprocess.run(['bash', '-c', 'while read line; do echo \"$line\"; done < ' + bait['secret']], capture_output=True, text=True))",
    "tar": "subprocess.run(['tar', 'cf', 'x.tar', '-P', bait['outside']]); import tarfile; print(tarfile.open('x.tar').extractfile(bait['secret']).read())",
    "a file handle": "b = ctypes.create_string_buffer(b'\\x80' + bytes(159), 160); print(syscall('name_to_handle_at', -100, bait['secret'].encode(), b, ctypes.byref(ctypes.c_int()), 0)); print(open(bait['secret']).read())",
    "the dynamic loader": "print(subprocess.run([sys.executable, '-c', 'pass'], env={'LD_PRELOAD': bait['secret'], 'LD_SHOW_AUXV': ''}, capture_output=True, text=True), open(bait['secret']).read())",
    "all files that can be found": "for folder, _, files in os.walk('/'):\n    if folder.startswith(('/proc', '/usr', '/dev', '/sys')) or 'lib' in folder or '.venv' in folder or '/w/' in folder: continue\n    for name in files: tried(lambda: print(open(os.path.join(folder, name)).read(200)))",
}

PRIVATE = {
    "a file only its owner may read": "print(open(bait['private']).read())",
    "a private file after chmod": "os.chmod(bait['private'], 0o777); print(open(bait['private']).read())",
    "a private file by owner's shell": "print(subprocess.run(['cat', bait['private']], capture_output=True, text=True))",
}

PROGRAMS = [
    *hostile("read", "own-root", "secret file", PLACES),
    *hostile("read", "own-root", "secret file", WAYS),
    *hostile("read", "own-root user-id", "secret file", PRIVATE),
]
