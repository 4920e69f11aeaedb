"""Asks the kernel for what no session needs, with arguments that do nothing even where the call is allowed."""

from __future__ import annotations

from bench.escaping.program import hostile

CALLS = {
    "ptrace": "reaches(101, 99, 0, 0, 0)",
    "process_vm_readv": "reaches(310, os.getpid(), 0, 0, 0, 0, 0)",
    "process_vm_writev": "reaches(311, os.getpid(), 0, 0, 0, 0, 0)",
    "process_madvise": "reaches(440, -1, 0, 0, 0, 0)",
    "process_mrelease": "reaches(448, -1, 0)",
    "kcmp": "reaches(312, os.getpid(), os.getpid(), 0, 0, 1)",
    "unshare a user namespace": "reaches(272, 0x10000000)",
    "unshare files": "reaches(272, 0x400)",
    "clone a user namespace": "answer = syscall(56, 0x10000000 | 17, 0, 0, 0, 0)\nif answer[0] == 0: os._exit(0)\nif answer[0] > 0: escaped()",
    "clone3": "reaches(435, 0, 0)",
    "setns": "reaches(308, -1, 0)",
    "bpf": "reaches(321, 99, 0, 0)",
    "keyctl": "reaches(250, 99)",
    "the session keyring": "reaches(250, 0, -3, 0)",
    "add_key": "reaches(248, b'user', b'pinfold', b'x', 1, -3)",
    "request_key": "reaches(249, b'user', b'none', 0, -3)",
    "userfaultfd": "reaches(323, 0xFFFF)",
    "userfaultfd for user mode": "reaches(323, 1)",
    "io_uring_setup": "reaches(425, 4, ctypes.create_string_buffer(256))",
    "io_uring_enter": "reaches(426, -1, 0, 0, 0, 0)",
    "io_uring_register": "reaches(427, -1, 99, 0, 0)",
    "perf_event_open": "reaches(298, 0, 0, 0, 0, 0)",
    "fanotify_init": "reaches(300, 0x200, 0)",
    "name_to_handle_at": "reaches(303, -1, 0, 0, 0, 0)",
    "open_tree": "reaches(428, -100, b'/', 0)",
    "openat2": "reaches(437, -100, 0, 0, 0)",
    "pidfd_getfd": "reaches(438, -1, 0, 0)",
    "pidfd_send_signal": "reaches(424, -1, 0, 0, 0)",
    "memfd_secret": "reaches(447, 0xFF)",
    "personality": "reaches(135, 0x0040000)",
    "modify_ldt": "reaches(154, 0, 0, 0)",
    "settimeofday": "reaches(164, ctypes.create_string_buffer(b'\\xff' * 16, 16), 0)",
    "clock_settime": "reaches(227, 99, 0)",
    "adjtimex": "reaches(159, 0)",
    "clock_adjtime": "reaches(305, 99, 0)",
    "sysfs": "reaches(139, 3)",
    "ustat": "reaches(136, 0, 0)",
    "quotactl": "reaches(179, 0x7fffffff, 0, 0, 0)",
    "quotactl_fd": "reaches(443, -1, 0, 0, 0)",
    "remap_file_pages": "reaches(216, 0, 0, 0, 0, 0)",
    "move_pages": "reaches(279, 0, 0, 0, 0, 0, 0)",
    "migrate_pages": "reaches(256, 0, 0, 0, 0)",
    "mbind": "reaches(237, 1, 0, 99, 0, 0, 0)",
    "statmount": "reaches(457, 0, 0, 0, 0)",
    "listmount": "reaches(458, 0, 0, 0, 0)",
    "landlock": "reaches(444, 0, 0, 1)",
    "lsm_list_modules": "reaches(461, 0, 0, 0)",
    "kill everyone": "reaches(62, -1, 0)",
    "typing into a terminal": "reaches(16, 0, 0x5412, b'x')",
    "a console's selection": "reaches(16, 0, 0x541C, b'x')",
    "a terminal's discipline": "reaches(16, 0, 0x5423, b'x')",
    "a device by mknod": "reaches(133, 0, 0o020666, 0x103)",
    "a device by mknodat": "reaches(259, -1, 0, 0o060666, 0)",
    "mount": "reaches(165, 0, 0, 0, 0, 0)",
    "unmount": "reaches(166, b'/nowhere', 0)",
    "a lease that holds up the host": "import fcntl; f = open('mine', 'w'); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK); escaped()",
    "io_setup": "reaches(206, 1, ctypes.create_string_buffer(8))",
}
THIRTY_TWO = {
    "32-bit calls": (
        "import mmap\ncode = bytes.fromhex('53b814000000cd805bc3')\n"
        "page = mmap.mmap(-1, 4096, prot=7); page.write(code)\n"
        "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
        "if call() == os.getpid(): escaped()"
    ),
}
SET_ID = {
    "chmod": "open('f', 'w').close(); os.chmod('f', 0o4755)",
    "fchmod": "f = open('f', 'w'); os.fchmod(f.fileno(), 0o2755)",
    "open": "os.open('f', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "a folder's": "os.mkdir('d'); os.chmod('d', 0o2777)",
    "openat2": "how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0); print(syscall(437, -100, b'f', how, 24))",
    "a shell": "subprocess.run(['bash', '-c', 'cp /bin/true f; chmod u+s f'])",
    "fchmodat2": "open('f', 'w').close(); print(syscall(452, -100, b'f', 0o4755, 0))",
    "a file without a name": (
        "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755); print(libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, b'f', 0x400))"
    ),
}
OLD_SET_ID = {"creat": "syscall(85, b'f', 0o4755)"}
POWERS = {
    "chroot": "reaches(161, b'/tmp')",
    "a host name": "reaches(170, b'mine', 4)",
    "a domain name": "reaches(171, b'mine', 4)",
    "reboot, with the wrong words": "reaches(169, 1, 2, 3, 0)",
    "fsopen": "reaches(430, b'tmpfs', 0)",
    "fspick": "reaches(433, -100, b'/tmp', 0)",
    "pivot_root": "reaches(155, b'/nowhere', b'/nowhere')",
    "fsmount": "reaches(432, -1, 0, 0)",
    "mount_setattr": "reaches(442, -1, b'', 0x1000, ctypes.create_string_buffer(32), 32)",
    "a namespace of mounts": "reaches(272, 0x20000)",
    "a namespace of networks": "reaches(272, 0x40000000)",
    "a namespace of queues": "reaches(272, 0x8000000)",
}
MOUNTS = {
    "a mount over its own /tmp": "reaches(165, b'x', b'/tmp', b'tmpfs', 0, 0)",
    "its root made writable": "reaches(165, 0, b'/', 0, 32 | 4096, 0)",
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
    ),
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
    "tracing its init": "if syscall(101, 0x4206, 1, 0, 0)[0] == 0: escaped()",
    "its init's memory by call": (
        "b = ctypes.create_string_buffer(8); v = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 8)\n"
        "r = (ctypes.c_uint64 * 2)(id(None), 8)\nif syscall(310, 1, v, 1, r, 1, 0)[0] == 8: escaped()"
    ),
    "its init's channel": (
        "p = os.pidfd_open(1)\nfor n in range(3, 20):\n    if syscall(438, p, n, 0)[0] >= 0: escaped()"
    ),
}

PROGRAMS = [
    *hostile("kernel", "filter", "word", CALLS | THIRTY_TWO, machine="x86_64"),
    *hostile("set-id", "filter", "set-id", SET_ID),
    *hostile("set-id", "filter", "set-id", OLD_SET_ID, machine="x86_64"),
    *hostile("kernel", "filter capabilities", "word", POWERS, machine="x86_64"),
    *hostile("kernel", "filter capabilities landlock", "word", MOUNTS, machine="x86_64"),
    *hostile("kernel", "filter capabilities landlock", "secret masked", UNMASKED),
    *hostile("kernel", "capabilities", "word", GAINS),
    *hostile("kernel", "filter no-new-privileges landlock", "word", UNFILTERED),
    *hostile("kernel", "capabilities read-only landlock", "word", LOCKED),
    *hostile("kernel", "closed-memory landlock capabilities", "word", INIT),
    *hostile("kernel", "closed-memory landlock capabilities filter", "word", TRACED, machine="x86_64"),
]
