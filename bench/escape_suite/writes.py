"""Makes or changes files outside, or where nothing may be written."""

from __future__ import annotations

from bench.escape_suite.program import hostile

OUTSIDE = {
    "a new file": "open(bait['made'], 'w').write('x')",
    "append": "open(bait['writable'], 'a').write('x')",
    "truncate": "os.truncate(bait['writable'], 0)",
    "rename a file away": "os.rename(bait['writable'], bait['made'])",
    "remove a file": "os.remove(bait['writable'])",
    "a new folder": "os.mkdir(bait['made'])",
    "a symbolic link": "os.symlink('/', bait['made'])",
    "a second name for a file": "os.link(bait['writable'], bait['made'])",
    "a new file through a linked folder": "open('folder.link/made', 'w').write('x')",
    "a new file through /proc/self/root": "open('/proc/self/root' + bait['made'], 'w').write('x')",
    "a new file by steps up": "open('../' * 30 + bait['made'][1:], 'w').write('x')",
    "a file without a name, then named": (
        "fd = os.open(bait['outside'], os.O_TMPFILE | os.O_WRONLY); os.write(fd, b'x')\n"
        "libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, bait['made'].encode(), 0x400)"
    ),
    "a shared mapping": (
        "import mmap\nwith open(bait['writable'], 'r+b') as f:\n    m = mmap.mmap(f.fileno(), 0); m[0:2] = b'NO'; m.flush()"
    ),
    "a shell's redirection": "subprocess.run(['bash', '-c', 'echo x > ' + bait['made']])",
    "cp": "subprocess.run(['cp', '-r', '.', bait['made']])",
    "an archive that leads out": (
        "import io, tarfile\nt = tarfile.open('x.tar', 'w'); i = tarfile.TarInfo(bait['made']); i.size = 1\n"
        "t.addfile(i, io.BytesIO(b'x')); t.close(); subprocess.run(['tar', '-xPf', 'x.tar'])"
    ),
    "an extracted link, then a file through it": (
        "os.symlink(bait['outside'], 'inner'); import shutil; shutil.copy('AGENTS.md', 'inner/made')"
    ),
    "a database": "import sqlite3\nc = sqlite3.connect(bait['database']); c.execute('CREATE TABLE mine (x)'); c.commit()",
    "a socket file": "socket.socket(socket.AF_UNIX).bind(bait['made'])",
    "a key to log in with": "open('/home/victim/.ssh/authorized_keys', 'w').write('x')",
    "a shell's start-up file": "open('/home/victim/.bashrc', 'w').write('x')",
    "a scheduled job": "os.makedirs('/run/cron.d', exist_ok=True); open('/run/cron.d/job', 'w').write('x')",
    "a file in another file's folder by descriptor": (
        "fd = os.open(bait['outside'], os.O_PATH | os.O_DIRECTORY); os.close(os.open('made', os.O_CREAT | os.O_WRONLY, dir_fd=fd))"
    ),
}
DATA = {
    "data opened for writing": "open('/mnt/datasets/sales.csv', 'w').write('x')",
    "data in a folder": "open('/mnt/datasets/folder/more.csv', 'a').write('x')",
    "a new file beside the data": "open('/mnt/datasets/folder/new.csv', 'w').write('x')",
    "data removed": "os.remove('/mnt/datasets/folder/more.csv')",
    "data made executable": "os.chmod('/mnt/datasets/sales.csv', 0o777); escaped()",
}
READ_ONLY = {
    "a new file in a read-only workspace": "open('new', 'w').write('x'); escaped()",
    "a file removed from a read-only workspace": "os.remove('plain.link'); escaped()",
    "a rename in a read-only workspace": "os.rename('plain.link', 'plain'); escaped()",
}
SYSTEM = {
    "the guest's own code": (
        "[home] = sys.modules['_pinfold_guest'].__path__\nopen(home + '/serve.py', 'a').write('#'); escaped()"
    ),
    "a module for the next session": (
        "[home] = sys.modules['_pinfold_guest'].__path__\nopen(home + '/json.py', 'w').write('#'); escaped()"
    ),
}

PROGRAMS = [
    *hostile("write", "own-root landlock", "file", OUTSIDE),
    *hostile("write", "read-only landlock", "file", {k: v for k, v in DATA.items() if "executable" not in k}),
    *hostile("write", "read-only", "word", {k: v for k, v in DATA.items() if "executable" in k}),
    *hostile("write", "read-only landlock", "word", READ_ONLY, writable=False),
    *hostile("write", "read-only landlock user-id", "word", SYSTEM),
]
