"""Asks the kernel for what no session needs, with arguments that do nothing even where the call is allowed."""

from __future__ import annotations

import platform

from bench.escape_suite.program import hostile

CALLS = {
    "ptrace": "reaches('ptrace', 99, 0, 0, 0)",
    "process_vm_readv": "reaches('process_vm_readv', os.getpid(), 0, 0, 0, 0, 0)",
    "process_vm_writev": "reaches('process_vm_writev', os.getpid(), 0, 0, 0, 0, 0)",
    "process_madvise": "reaches('process_madvise', -1, 0, 0, 0, 0)",
    "process_mrelease": "reaches('process_mrelease', -1, 0)",
    "kcmp": "reaches('kcmp', os.getpid(), os.getpid(), 0, 0, 1)",
    "unshare a user namespace": "reaches('unshare', 0x10000000)",
    "unshare files": "reaches('unshare', 0x400)",
    "clone a user namespace": "answer = syscall('clone', 0x10000000 | 17, 0, 0, 0, 0)\nif answer[0] == 0: os._exit(0)\nif answer[0] > 0: escaped()",
    "clone3": "reaches('clone3', 0, 0)",
    "setns": "reaches('setns', -1, 0)",
    "bpf": "reaches('bpf', 99, 0, 0)",
    "keyctl": "reaches('keyctl', 99)",
    "the session keyring": "reaches('keyctl', 0, -3, 0)",
    "add_key": "reaches('add_key', b'user', b'pinfold', b'x', 1, -3)",
    "request_key": "reaches('request_key', b'user', b'none', 0, -3)",
    "userfaultfd": "reaches('userfaultfd', 0xFFFF)",
    "userfaultfd for user mode": "reaches('userfaultfd', 1)",
    "io_uring_setup": "reaches('io_uring_setup', 4, ctypes.create_string_buffer(256))",
    "io_uring_enter": "reaches('io_uring_enter', -1, 0, 0, 0, 0)",
    "io_uring_register": "reaches('io_uring_register', -1, 99, 0, 0)",
    "perf_event_open": "reaches('perf_event_open', 0, 0, 0, 0, 0)",
    "fanotify_init": "reaches('fanotify_init', 0x200, 0)",
    "name_to_handle_at": "reaches('name_to_handle_at', -1, 0, 0, 0, 0)",
    "open_tree": "reaches('open_tree', -100, b'/', 0)",
    "openat2": "reaches('openat2', -100, 0, 0, 0)",
    "pidfd_getfd": "reaches('pidfd_getfd', -1, 0, 0)",
    "pidfd_send_signal": "reaches('pidfd_send_signal', -1, 0, 0, 0)",
    "memfd_secret": "reaches('memfd_secret', 0xFF)",
    "personality": "reaches('personality', 0x0040000)",
    "modify_ldt": "reaches('modify_ldt', 0, 0, 0)",
    "settimeofday": "reaches('settimeofday', ctypes.create_string_buffer(b'\\xff' * 16, 16), 0)",
    "clock_settime": "reaches('clock_settime', 99, 0)",
    "adjtimex": "reaches('adjtimex', 0)",
    "clock_adjtime": "reaches('clock_adjtime', 99, 0)",
    "sysfs": "reaches('sysfs', 3)",
    "ustat": "reaches('ustat', 0, 0)",
    "quotactl": "reaches('quotactl', 0x7fffffff, 0, 0, 0)",
    "quotactl_fd": "reaches('quotactl_fd', -1, 0, 0, 0)",
    "remap_file_pages": "reaches('remap_file_pages', 0, 0, 0, 0, 0)",
    "move_pages": "reaches('move_pages', 0, 0, 0, 0, 0, 0)",
    "migrate_pages": "reaches('migrate_pages', 0, 0, 0, 0)",
    "mbind": "reaches('mbind', 1, 0, 99, 0, 0, 0)",
    "statmount": "reaches('statmount', 0, 0, 0, 0)",
    "listmount": "reaches('listmount', 0, 0, 0, 0)",
    "lsm_list_modules": "reaches('lsm_list_modules', 0, 0, 0)",
    "kill everyone": "reaches('kill', -1, 0)",
    "typing into a terminal": "reaches('ioctl', 0, 0x5412, b'x')",
    "a console's selection": "reaches('ioctl', 0, 0x541C, b'x')",
    "a terminal's discipline": "reaches('ioctl', 0, 0x5423, b'x')",
    "a device by mknod": "reaches('mknod', 0, 0o020666, 0x103)",
    "a device by mknodat": "reaches('mknodat', -1, 0, 0o060666, 0)",
    "mount": "reaches('mount', 0, 0, 0, 0, 0)",
    "unmount": "reaches('umount2', b'/nowhere', 0)",
    "a lease that holds up the host": "import fcntl; f = open('mine', 'w'); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK); escaped()",
    "io_setup": "reaches('io_setup', 1, ctypes.create_string_buffer(8))",
}
_BY_INTERRUPT = """
import mmap
page = mmap.mmap(-1, 4096, prot=7); page.write(bytes.fromhex('53b814000000cd805bc3'))
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
if call() == os.getpid(): escaped()
"""
_BY_PROGRAM = """
import struct
# getpid, and exit with what it said.
code = struct.pack('<4I', 0xe3a07014, 0xef000000, 0xe3a07001, 0xef000000)
whole = b'\\x7fELF' + struct.pack('<3B9x2H5I6H', 1, 1, 1, 2, 40, 1, 0x10054, 52, 0, 0x5000000, 52, 32, 1, 40, 0, 0)
whole += struct.pack('<8I', 1, 0, 0x10000, 0x10000, 84 + len(code), 84 + len(code), 5, 4096) + code
with open('thirty-two', 'wb') as file: file.write(whole)
os.chmod('thirty-two', 0o755)
child = subprocess.Popen(['./thirty-two'])
if child.wait() == child.pid & 0xff: escaped()
"""
THIRTY_TWO = {"32-bit calls": _BY_INTERRUPT if platform.machine() == "x86_64" else _BY_PROGRAM}
"""Their numbers are others than the filter knows; aarch64 makes them from a program of 32 bits alone."""
SET_ID = {
    "chmod": "open('f', 'w').close(); os.chmod('f', 0o4755)",
    "fchmod": "f = open('f', 'w'); os.fchmod(f.fileno(), 0o2755)",
    "open": "os.open('f', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "a folder's": "os.mkdir('d'); os.chmod('d', 0o2777)",
    "openat2": "how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0); print(syscall('openat2', -100, b'f', how, 24))",
    "a shell": "subprocess.run(['bash', '-c', 'cp /bin/true f; chmod u+s f'])",
    "creat": "syscall('creat', b'f', 0o4755)",
    "fchmodat2": "open('f', 'w').close(); print(syscall('fchmodat2', -100, b'f', 0o4755, 0))",
    "a file without a name": (
        "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755); print(libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, b'f', 0x400))"
    ),
}
POWERS = {
    "chroot": "reaches('chroot', b'/tmp')",
    "a host name": "reaches('sethostname', b'mine', 4)",
    "a domain name": "reaches('setdomainname', b'mine', 4)",
    "reboot, with the wrong words": "reaches('reboot', 1, 2, 3, 0)",
    "fsopen": "reaches('fsopen', b'tmpfs', 0)",
    "fspick": "reaches('fspick', -100, b'/tmp', 0)",
    "pivot_root": "reaches('pivot_root', b'/nowhere', b'/nowhere')",
    "fsmount": "reaches('fsmount', -1, 0, 0)",
    "mount_setattr": "reaches('mount_setattr', -1, b'', 0x1000, ctypes.create_string_buffer(32), 32)",
    "a namespace of mounts": "reaches('unshare', 0x20000)",
    "a namespace of networks": "reaches('unshare', 0x40000000)",
    "a namespace of queues": "reaches('unshare', 0x8000000)",
}
MOUNTS = {
    "a mount over its own /tmp": "reaches('mount', b'x', b'/tmp', b'tmpfs', 0, 0)",
    "its root made writable": "reaches('mount', 0, b'/', 0, 32 | 4096, 0)",
}
UNMASKED = {"a mask taken off": "libc.umount2(b'.env', 2); print(open('.env').read())"}
GAINS = {
    "capabilities": (
        "lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\nif int(lines['CapEff'], 16): escaped()"
    ),
    "capabilities to be had": (
        "lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\nif int(lines['CapBnd'], 16): escaped()"
    ),
}
UNFILTERED = {
    "no new privileges": (
        "lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\nif int(lines['NoNewPrivs']) == 0: escaped()"
    )
}
LOCKED = {
    "a setting of the kernel": "fd = os.open('/proc/sys/net/ipv4/ip_default_ttl', os.O_WRONLY); escaped()",
    "another setting of the kernel": "fd = os.open('/proc/sys/net/ipv4/ping_group_range', os.O_WRONLY); escaped()",
}
INIT = {
    "its init's memory": "os.open('/proc/1/mem', os.O_RDONLY); escaped()",
    "its init's descriptors": "print(os.listdir('/proc/1/fd')); escaped()",
    "its init's root": "print(os.listdir('/proc/1/root')); escaped()",
    "its init's maps": "print(len(open('/proc/1/maps').read())); escaped()",
    "its init's environment": "print(len(open('/proc/1/environ').read())); escaped()",
}
TRACED = {
    "tracing its init": "if syscall('ptrace', 0x4206, 1, 0, 0)[0] == 0: escaped()",
    "its init's memory by call": (
        "b = ctypes.create_string_buffer(8); v = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 8)\n"
        "r = (ctypes.c_uint64 * 2)(id(None), 8)\nif syscall('process_vm_readv', 1, v, 1, r, 1, 0)[0] == 8: escaped()"
    ),
    "its init's channel": (
        "p = os.pidfd_open(1)\nfor n in range(3, 20):\n    if syscall('pidfd_getfd', p, n, 0)[0] >= 0: escaped()"
    ),
}

PROGRAMS = [
    *hostile("kernel", "filter", "word", CALLS | THIRTY_TWO),
    *hostile("set-id", "filter", "set-id", SET_ID),
    *hostile("kernel", "filter capabilities", "word", POWERS),
    *hostile("kernel", "filter capabilities landlock", "word", MOUNTS),
    *hostile("kernel", "filter capabilities landlock", "secret masked", UNMASKED),
    *hostile("kernel", "capabilities", "word", GAINS),
    *hostile("kernel", "filter no-new-privileges landlock", "word", UNFILTERED),
    *hostile("kernel", "capabilities read-only landlock", "word", LOCKED),
    *hostile("kernel", "closed-memory landlock capabilities", "word", INIT),
    *hostile("kernel", "closed-memory landlock capabilities filter", "word", TRACED),
]
