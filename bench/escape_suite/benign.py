"""Ordinary work with the standard library and the machine's programs, all of which must go on working."""

from __future__ import annotations

from bench.escape_suite.program import Benign

PYTHON = {
    "arithmetic": "from decimal import Decimal\nfrom fractions import Fraction\nassert Decimal('0.1') * 3 == Decimal('0.3') and Fraction(1, 3) * 3 == 1",
    "text files": "open('t.txt', 'w', encoding='utf-8').write('zażółć\\n' * 1000)\nassert len(open('t.txt', encoding='utf-8').readlines()) == 1000",
    "a large file": "with open('big', 'wb') as f:\n    for _ in range(64): f.write(bytes(1 << 20))\nimport os\nassert os.path.getsize('big') == 64 << 20\nos.remove('big')",
    "folders": "import os\nos.makedirs('a/b/c'); open('a/b/c/f', 'w').close()\nassert [f for _, _, fs in os.walk('a') for f in fs] == ['f']",
    "links": "import os\nopen('f', 'w').write('x'); os.symlink('f', 's'); os.link('f', 'h')\nassert open('s').read() == open('h').read() == 'x'",
    "renames and permissions": "import os, stat\nopen('f', 'w').close(); os.chmod('f', 0o750); os.rename('f', 'g')\nassert stat.S_IMODE(os.stat('g').st_mode) == 0o750",
    "times of files": "import os\nopen('f', 'w').close(); os.utime('f', (1, 2))\nassert os.stat('f').st_mtime == 2",
    "a named pipe": "import os, threading\nos.mkfifo('p')\nt = threading.Thread(target=lambda: open('p', 'w').write('x')); t.start()\nassert open('p').read() == 'x'; t.join()",
    "locks on files": "import fcntl\nf = open('l', 'w'); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(open('m', 'w'), fcntl.LOCK_EX)",
    "extended attributes": "import os\nopen('f', 'w').close()\ntry: os.setxattr('f', 'user.k', b'v'); assert os.getxattr('f', 'user.k') == b'v'\nexcept OSError as e: assert e.errno == 95",
    "temporary files": "import tempfile, os\nwith tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile(dir=d) as f: f.write(b'x'); f.flush(); assert os.path.getsize(f.name) == 1",
    "a file without a name": "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'x'); f.seek(0); assert f.read() == b'x'",
    "memory maps": "import mmap\nopen('m', 'wb').write(bytes(8192))\nwith open('m', 'r+b') as f:\n    m = mmap.mmap(f.fileno(), 0); m[0] = 7; m.flush(); m.close()\nassert open('m', 'rb').read(1) == b'\\x07'",
    "memory as a file": "import os\nfd = os.memfd_create('x'); os.write(fd, b'abc'); assert os.pread(fd, 3, 0) == b'abc'",
    "copies": "import shutil\nopen('a', 'wb').write(bytes(1 << 20)); shutil.copy2('a', 'b'); shutil.move('b', 'c')\nassert shutil.disk_usage('.').total > 0",
    "zip archives": "import zipfile\nwith zipfile.ZipFile('z.zip', 'w', zipfile.ZIP_DEFLATED) as z: z.writestr('a', 'x' * 1000)\nassert zipfile.ZipFile('z.zip').read('a') == b'x' * 1000",
    "tar archives": "import tarfile, os\nopen('f', 'w').write('x')\nwith tarfile.open('t.tgz', 'w:gz') as t: t.add('f')\nos.remove('f'); tarfile.open('t.tgz').extract('f', set_attrs=True); assert open('f').read() == 'x'",
    "compression": "import bz2, gzip, lzma, zlib\nfor m in (bz2, gzip, lzma, zlib): assert m.decompress(m.compress(b'x' * 999)) == b'x' * 999",
    "csv and json": "import csv, json\ncsv.writer(open('c.csv', 'w')).writerows([[1, 2], [3, 4]])\nassert json.loads(json.dumps(list(csv.reader(open('c.csv'))))) == [['1', '2'], ['3', '4']]",
    "sqlite": "import sqlite3\nc = sqlite3.connect('d.db'); c.execute('PRAGMA journal_mode=WAL'); c.execute('CREATE TABLE t (x)'); c.executemany('INSERT INTO t VALUES (?)', [(i,) for i in range(1000)]); c.commit()\nassert c.execute('SELECT sum(x) FROM t').fetchone() == (499500,)",
    "dbm and shelve": "import shelve\nwith shelve.open('s') as s: s['a'] = [1]\nwith shelve.open('s') as s: assert s['a'] == [1]",
    "pickle": "import pickle\nassert pickle.loads(pickle.dumps({'a': (1, 2.5, b'x')})) == {'a': (1, 2.5, b'x')}",
    "hashes": "import hashlib, hmac\nassert hashlib.sha256(b'').hexdigest()[:8] == 'e3b0c442' and hashlib.scrypt(b'p', salt=b's', n=16, r=1, p=1) and hmac.digest(b'k', b'm', 'sha256')",
    "randomness": "import os, random, secrets, uuid\nassert len({os.urandom(8), secrets.token_bytes(8), uuid.uuid4().bytes, random.randbytes(8), open('/dev/urandom', 'rb').read(8)}) == 5",
    "dates and zones": "from datetime import datetime, timedelta, timezone\nfrom zoneinfo import ZoneInfo\nassert datetime(2026, 7, 1, tzinfo=ZoneInfo('Europe/Warsaw')).utcoffset() == timedelta(hours=2)",
    "locale": "import locale, sys\nlocale.setlocale(locale.LC_ALL, '')\nassert sys.getfilesystemencoding() == 'utf-8' and 'é'.upper() == 'É'",
    "logging to a file": "import logging\nlogging.basicConfig(filename='l.log', level='INFO'); logging.info('hello')\nassert 'hello' in open('l.log').read()",
    "mail": "from email.message import EmailMessage\nm = EmailMessage(); m['To'] = 'a@b'; m.set_content('x'); m.add_attachment(b'y', maintype='a', subtype='b')\nassert b'multipart/mixed' in bytes(m)",
    "xml and html": "import html, xml.etree.ElementTree as E\nassert E.fromstring('<a><b>1</b></a>').find('b').text == '1' and html.unescape('&amp;') == '&'",
    "a certificate store": "import ssl\nc = ssl.create_default_context(); assert c.verify_mode == ssl.CERT_REQUIRED",
    "users": "import getpass, grp, os, pwd\nassert pwd.getpwuid(os.getuid()).pw_name == getpass.getuser() and grp.getgrgid(os.getgid()) and os.path.expanduser('~')",
    "the machine": "import os, platform, resource, socket\nassert os.cpu_count() and platform.machine() and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss and socket.gethostname() and os.getloadavg() and os.sysconf('SC_PAGE_SIZE')",
    "ctypes": "import ctypes, ctypes.util\nc = ctypes.CDLL(None); assert c.strlen(b'four') == 4 and c.getpid() > 0 and ctypes.CDLL(ctypes.util.find_library('m')).abs(-3) == 3",
    "a callback from C": "import ctypes\nF = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)); a = (ctypes.c_int * 3)(3, 1, 2)\nctypes.CDLL(None).qsort(a, 3, 4, F(lambda x, y: x[0] - y[0])); assert list(a) == [1, 2, 3]",
    "deep recursion": "import sys\nsys.setrecursionlimit(20000)\ndef f(n): return n and f(n - 1)\nassert f(5000) == 0",
    "weak references and gc": "import gc, weakref\nclass A: pass\na = A(); r = weakref.ref(a); del a; gc.collect(); assert r() is None",
    "importing its own module": "open('mine.py', 'w').write('x = 5')\nimport mine\nassert mine.x == 5",
    "warnings and tracebacks": "import traceback, warnings\nwith warnings.catch_warnings(record=True) as w: warnings.simplefilter('always'); warnings.warn('x')\nassert w\ntry: 1 / 0\nexcept ZeroDivisionError: assert 'ZeroDivision' in traceback.format_exc()",
}
RUNNING = {
    "threads": "import threading\nout = []\nts = [threading.Thread(target=out.append, args=[i]) for i in range(50)]\nfor t in ts: t.start()\nfor t in ts: t.join()\nassert sorted(out) == list(range(50))",
    "a pool of threads": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as p: assert sum(p.map(abs, range(-50, 0))) == 1275",
    "a pool of processes": "from concurrent.futures import ProcessPoolExecutor\nfrom math import sqrt\nwith ProcessPoolExecutor(2) as p: assert sum(p.map(sqrt, [4, 9])) == 5",
    "multiprocessing by fork": "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]",
    "multiprocessing by spawn": "import multiprocessing as m\nc = m.get_context('spawn'); q = c.Queue(); p = c.Process(target=q.put, args=[5]); p.start(); assert q.get(timeout=30) == 5; p.join()",
    "multiprocessing by forkserver": "import multiprocessing as m\nc = m.get_context('forkserver'); p = c.Process(target=print); p.start(); p.join(); assert p.exitcode == 0",
    "shared memory": "from multiprocessing import shared_memory\ns = shared_memory.SharedMemory(create=True, size=100); s.buf[0] = 9; t = shared_memory.SharedMemory(s.name); assert t.buf[0] == 9; t.close(); s.close(); s.unlink()",
    "locks between processes": "import multiprocessing as m\nc = m.get_context('fork'); v = c.Value('i', 0)\ndef f():\n    for _ in range(100):\n        with v.get_lock(): v.value += 1\nps = [c.Process(target=f) for _ in range(3)]\nfor p in ps: p.start()\nfor p in ps: p.join()\nassert v.value == 300",
    "a manager": "import multiprocessing as m\nwith m.get_context('fork').Manager() as g: d = g.dict(); d['a'] = 1; assert dict(d) == {'a': 1}",
    "subprocesses": "import subprocess\nassert subprocess.run(['wc', '-c'], input=b'abc', capture_output=True).stdout.strip() == b'3'",
    "a pipeline": "import subprocess\nassert subprocess.check_output(\"printf 'b\\\\na\\\\n' | sort | head -1\", shell=True) == b'a\\n'",
    "a time-out of a subprocess": "import subprocess\ntry: subprocess.run(['sleep', '9'], timeout=0.1); assert False\nexcept subprocess.TimeoutExpired: pass",
    "fork and wait": "import os\npid = os.fork()\nif pid == 0: os._exit(7)\nassert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7",
    "posix_spawn": "import os\npid = os.posix_spawn('/bin/true', ['true'], {}); assert os.waitpid(pid, 0)[1] == 0",
    "signals": "import os, signal\ngot = []\nsignal.signal(signal.SIGUSR1, lambda n, f: got.append(n)); os.kill(os.getpid(), signal.SIGUSR1); assert got == [signal.SIGUSR1]",
    "an alarm": "import signal\ndef ring(*_): raise TimeoutError\nsignal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.05)\ntry:\n    for _ in iter(int, 1): pass\nexcept TimeoutError: pass",
    "killing its own child": "import os, signal, subprocess\np = subprocess.Popen(['sleep', '60']); os.kill(p.pid, signal.SIGTERM); assert p.wait() == -15",
    "a handle on a process": "import os, select, subprocess\np = subprocess.Popen(['true']); fd = os.pidfd_open(p.pid); assert select.select([fd], [], [], 9)[0]; p.wait()",
    "asyncio": "import asyncio\nasync def f(n): await asyncio.sleep(0.01); return n\nassert sum(await asyncio.gather(*map(f, range(20)))) == 190",
    "asyncio.run": "import asyncio\nasync def main():\n    p = await asyncio.create_subprocess_exec('echo', 'x', stdout=-1); return (await p.communicate())[0]\nassert asyncio.run(main()) == b'x\\n'",
    "priorities": "import os\nassert os.nice(1) >= 1 and os.sched_getaffinity(0)",
    "limits of its own": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (200, 1024)); assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 200",
}
SOCKETS = {
    "a web server on loopback": "import http.server, threading, urllib.request\nopen('i.txt', 'w').write('hello')\ns = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler); s.RequestHandlerClass.log_message = lambda *a: None\nthreading.Thread(target=s.serve_forever, daemon=True).start()\nassert urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/i.txt').read() == b'hello'; s.shutdown()",
    "a server by name": "import socket, threading\ns = socket.create_server(('localhost', 0)); c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.sendall(b'x'); assert a.recv(1) == b'x'",
    "loopback, version 6": "import socket\ns = socket.create_server(('::1', 0), family=socket.AF_INET6); c = socket.create_connection(s.getsockname()[:2]); assert s.accept()",
    "datagrams": "import socket\na = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0)); b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP); b.sendto(b'x', a.getsockname()); assert a.recv(9) == b'x'",
    "unix sockets": "import socket, os\ns = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect('/tmp/s'); assert s.accept()",
    "a unix socket in the workspace": "import socket, os\ns = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect('s'); assert s.accept()",
    "an abstract socket": "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('\\0mine'); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect('\\0mine'); assert s.accept()",
    "descriptors over a socket": "import os, socket\na, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0]); assert len(socket.recv_fds(b, 9, 1)[1]) == 1",
    "an asyncio server": "import asyncio\nasync def serve(r, w): w.write((await r.readline()).upper()); w.close()\ns = await asyncio.start_server(serve, '127.0.0.1', 0)\nr, w = await asyncio.open_connection(*s.sockets[0].getsockname()); w.write(b'hi\\n'); assert await r.read() == b'HI\\n'",
    "selectors": "import os, selectors\ns = selectors.DefaultSelector(); r, w = os.pipe(); s.register(r, selectors.EVENT_READ); os.write(w, b'x'); assert s.select(1)",
    "file events": "import ctypes, os\nl = ctypes.CDLL(None); fd = l.inotify_init1(0); assert l.inotify_add_watch(fd, b'.', 0x100) > 0; open('n', 'w').close(); assert b'n' in os.read(fd, 99)",
    "timers and events": "import ctypes, os\nl = ctypes.CDLL(None); assert l.timerfd_create(1, 0) > 0 and os.eventfd(1) > 0",
}
PROGRAMS_OUTSIDE = {
    "bash": (
        "bash",
        "import subprocess\nassert subprocess.check_output(['bash', '-c', 'a=(1 2 3); for i in ${a[@]}; do echo $((i*i)); done; diff <(echo 1) <(echo 1)']) == b'1\\n4\\n9\\n'",
    ),
    "coreutils": (
        "sed",
        "import subprocess\nassert subprocess.check_output(\"seq 5 | sed 's/3/x/' | tr '\\\\n' ' ' | cut -d' ' -f3\", shell=True).strip() == b'x'",
    ),
    "find and xargs": (
        "find",
        "import subprocess\nopen('a.txt', 'w').write('x')\nassert b'1' in subprocess.check_output('find . -name \"*.txt\" | xargs wc -c', shell=True)",
    ),
    "awk and perl": (
        "perl",
        "import subprocess\nassert subprocess.check_output(['perl', '-e', 'print 6*7']) == b'42' == subprocess.check_output(['awk', 'BEGIN{printf 42}'])",
    ),
    "git": (
        "git",
        "import subprocess\ndef git(*a): return subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b', *a], check=True, capture_output=True, text=True).stdout\ngit('init', '-q', 'r'); open('r/f', 'w').write('x'); git('-C', 'r', 'add', '.'); git('-C', 'r', 'commit', '-qm', 'one'); open('r/f', 'w').write('y')\nassert 'one' in git('-C', 'r', 'log') and '+y' in git('-C', 'r', 'diff')",
    ),
    "git branches and clones": (
        "git",
        "import subprocess\nr = subprocess.run('git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git switch -qc two && cd .. && git clone -q r s && git -C s branch -a', shell=True, capture_output=True, text=True)\nassert 'two' in r.stdout, r",
    ),
    "gcc": (
        "gcc",
        "import subprocess\nopen('x.c', 'w').write('#include <stdio.h>\\nint main(){puts(\"hi\");}'); subprocess.run(['gcc', '-O2', 'x.c', '-o', 'x'], check=True); assert subprocess.check_output(['./x']) == b'hi\\n'",
    ),
    "node": (
        "node",
        "import subprocess\nassert subprocess.check_output(['node', '-e', 'setTimeout(() => console.log([1,2].map(x => x*2).join()), 10)']) == b'2,4\\n'",
    ),
    "a compiled extension": (
        "gcc",
        "import ctypes, subprocess\nopen('e.c', 'w').write('int twice(int x){return 2*x;}'); subprocess.run(['gcc', '-shared', '-fPIC', 'e.c', '-o', 'e.so'], check=True); assert ctypes.CDLL('./e.so').twice(4) == 8",
    ),
    "another Python": (
        "bash",
        "import subprocess, sys\nassert subprocess.check_output([sys.executable, '-c', 'import json, ssl, sqlite3; print(json.dumps([1]))']) == b'[1]\\n'",
    ),
    "a virtual environment": (
        "bash",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'venv', '--without-pip', 'v'], check=True); assert b'v' in subprocess.check_output(['v/bin/python', '-c', 'import sys; print(sys.prefix)'])",
    ),
}

PROGRAMS = [
    *(Benign(name=f"python: {name}", source=f"{source}\nprint('fine')") for name, source in PYTHON.items()),
    *(Benign(name=f"running: {name}", source=f"{source}\nprint('fine')") for name, source in RUNNING.items()),
    *(Benign(name=f"sockets: {name}", source=f"{source}\nprint('fine')") for name, source in SOCKETS.items()),
    *(
        Benign(name=f"programs: {name}", source=f"{source}\nprint('fine')", programs=(program,))
        for name, (program, source) in PROGRAMS_OUTSIDE.items()
    ),
]
