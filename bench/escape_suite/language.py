"""Gets at files through libraries, other languages and the interpreter's own insides."""

from __future__ import annotations

import platform

from bench.escape_suite.program import hostile

# openat: the first arguments of a function are a system call's too.
_OPENS = "b8010100000f05c3" if platform.machine() == "x86_64" else "080780d2010000d4c0035fd6"
INSIDES = {
    "linecache": "import linecache; print(linecache.getlines(bait['secret']))",
    "fileinput": "import fileinput; print(list(fileinput.input(bait['secret'])))",
    "a traceback that shows the line": "tried(lambda: exec(compile('1/0', bait['secret'], 'exec'))); exec(compile('1/0', bait['secret'], 'exec'))",
    "an import loader": "from importlib.machinery import SourceFileLoader; print(SourceFileLoader('x', bait['secret']).get_data(bait['secret']))",
    "runpy": "import runpy; runpy.run_path(bait['secret'])",
    "urllib": "import urllib.request; print(urllib.request.urlopen('file://' + bait['secret']).read())",
    "sqlite": "import sqlite3; print(sqlite3.connect(bait['database']).execute('SELECT * FROM users').fetchall())",
    "sqlite attach": "import sqlite3; c = sqlite3.connect(':memory:'); c.execute('ATTACH ? AS a', [bait['database']]); print(c.execute('SELECT * FROM a.users').fetchall())",
    "a pickle that opens": "import pickle; print(pickle.loads(b'cbuiltins\\nopen\\n(V' + bait['secret'].encode() + b'\\ntR.').read())",
    "subclasses of object": "w = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'FileLoader'][0]; print(w('x', bait['secret']).get_data(bait['secret']))",
    "builtins from a frame": "import sys; print(sys._getframe().f_builtins['open'](bait['secret']).read())",
    "the guest's own files": "import gc; [f] = [o for o in gc.get_objects() if type(o).__name__ == 'Files'][:1]; f.root = '/srv'; print(f.get(bait['secret'][5:], 1000))",
    "the guest's frames": "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\nprint(frame.f_builtins['open'](bait['secret']).read())",
    "machine code": (
        f"import mmap\ncode = bytes.fromhex('{_OPENS}'); open('code', 'wb').write(code)\n"
        # Of a file: what a program writes to its memory itself, aarch64 may not see as instructions at once.
        "with open('code', 'r+b') as file: page = mmap.mmap(file.fileno(), len(code), flags=mmap.MAP_PRIVATE, prot=7)\n"
        "path = ctypes.create_string_buffer(bait['secret'].encode())\n"
        "call = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
        "fd = call(-100, ctypes.addressof(path), 0); print(fd, fd >= 0 and os.read(fd, 99))"
    ),
    "a program of its own": "print(subprocess.run([sys.executable, '-c', 'import sys; print(open(sys.argv[1]).read())', bait['secret']], capture_output=True, text=True))",
    "multiprocessing": "import multiprocessing as m\nwith m.get_context('fork').Pool(1) as pool: print(pool.apply(eval, [f\"open({bait['secret']!r}).read()\"]))",
    "an audit hook's end": "sys.addaudithook(lambda *_: None); print(open(bait['secret']).read())",
    "a trace function": "sys.settrace(lambda f, *_: None); print(open(bait['secret']).read())",
}
LANGUAGES = {
    "node": "print(subprocess.run(['node', '-e', f\"console.log(require('fs').readFileSync({bait['secret']!r}, 'utf8'))\"], capture_output=True, text=True))",
    "perl": "print(subprocess.run(['perl', '-ne', 'print', bait['secret']], capture_output=True, text=True))",
    "awk": "print(subprocess.run(['awk', '1', bait['secret']], capture_output=True, text=True))",
    "a compiler's error": "open('x.c', 'w').write(f'#include \"{bait[\"secret\"]}\"'); print(subprocess.run(['gcc', '-fsyntax-only', 'x.c'], capture_output=True, text=True))",
    "a compiled program": (
        "open('x.c', 'w').write('#include <stdio.h>\\nint main(int c, char**v){char b[99]; FILE*f=fopen(v[1],\"r\"); if(f) puts(fgets(b,99,f));}')\n"
        "subprocess.run(['gcc', 'x.c', '-o', 'x'], check=True); print(subprocess.run(['./x', bait['secret']], capture_output=True, text=True))"
    ),
    "git": "print(subprocess.run(['git', 'diff', '--no-index', '/dev/null', bait['secret']], capture_output=True, text=True))",
}

PROGRAMS = [
    *hostile("lang", "own-root", "secret file", INSIDES),
    *hostile("lang", "own-root", "secret file", LANGUAGES),
]
