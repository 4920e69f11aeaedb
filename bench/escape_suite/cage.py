"""A place of its own for hostile programs: namespaces and a root with nothing of the machine but its programs.

Nothing here may run before `enter`, and everything else asks `refuse_outside` first: a hostile program run bare
once mounted an empty folder over a machine's /tmp.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

from pinfold.guest.kernel.syscalls import (
    ATTR_RDONLY,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    attach,
    clone_mount,
    drop_capabilities,
    leave_old_root,
    loopback_up,
    mount,
    pivot_to,
    prctl,
    set_hostname,
    set_mount_attributes,
    unshare,
)

Kind: TypeAlias = Literal["root", "user", "mapped"]
"""The machine's root, an ordinary user, or a root whose ids mean nothing outside: the only one for weakened builds."""

CLONE_NEWCGROUP = 0x2000000
REST = CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup")
OUTSIDE = "PINFOLD_OUTSIDE"
"""Names the namespaces of whoever started us, so that we can see that we have left them."""
HOSTNAME = "PINFOLD_CAGE"
BASE = "/tmp"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc")
DEVICES = ("null", "zero", "full", "random", "urandom")
PLACES = ("/tmp", "/space", "/srv", "/home", "/root", "/opt", "/mnt", "/run", "/var")
"""Empty, and the suite's own."""
FIRST_ID, IDS = 1_000_000, 300_000


class Outside(Exception):
    """We are not where hostile programs may run."""


def namespaces() -> dict[str, str]:
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in NAMESPACES}


def refuse_outside() -> None:
    """Raises Outside unless every namespace is our own and the root is the cage's."""
    outside: dict[str, str] = json.loads(os.environ.get(OUTSIDE, "{}"))
    shared = [name for name, place in namespaces().items() if outside.get(name, place) == place]
    if shared:
        raise Outside(f"hostile programs run only in namespaces of their own; shared: {', '.join(shared)}")
    if not Path("/space").is_dir() or Path("/boot").exists():
        raise Outside("hostile programs run only in the cage's own root; start bench/escape.py")


def enter(kind: Kind, keep: list[Path], uid: int, program: list[str]) -> NoReturn:
    """Runs the program inside; the calling process stays behind until it has ended, and exits like it."""
    outside = namespaces()
    user = os.geteuid()
    if user != 0:
        _new_user_namespace(user, user if kind == "user" else 0)
    _skeleton(keep, machine=kind == "root" and user == 0)
    if kind == "mapped" and user == 0:
        _new_user_namespace(user, 0)
    unshare(REST)
    _continue_in_child()
    unshare(CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    for place in PLACES:
        # A set-id file in a workspace is guarded only where it would be obeyed.
        flags = MS_NODEV if place == "/space" else MS_NOSUID | MS_NODEV
        mount("cage", place, "tmpfs", flags, "mode=1777,size=8g")
    _put_back(keep)
    _set_up_network()
    os.environ[OUTSIDE] = json.dumps(outside)
    # Our own namespace's counter: numbers as on a machine, none of which a session also has by chance.
    Path("/proc/sys/kernel/ns_last_pid").write_text("20000")
    _continue_in_child()
    if kind == "user":
        _become(uid if user == 0 else user)
    refuse_outside()
    # A program begun anew, all of it inside: the old one's memory belongs to where it came from.
    os.execve(program[0], program, dict(os.environ))


def _new_user_namespace(user: int, inside: int) -> None:
    """Root gets a whole range of ids that nobody outside has; anyone else only their own."""
    ready, go = os.pipe()
    done, finished = os.pipe()
    me = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.read(ready, 1)
        if user != 0:
            Path(f"/proc/{me}/setgroups").write_text("deny")
        ids = f"0 {FIRST_ID} {IDS}" if user == 0 else f"{inside} {user} 1"
        Path(f"/proc/{me}/uid_map").write_text(ids)
        Path(f"/proc/{me}/gid_map").write_text(ids if user == 0 else f"{inside} {os.getegid()} 1")
        os.write(finished, b"1")
        os._exit(0)
    unshare(CLONE_NEWUSER)
    os.write(go, b"1")
    os.close(finished)
    if os.read(done, 1) != b"1":
        raise Outside("no ids could be mapped")
    os.waitpid(helper, 0)
    if user == 0:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    unshare(CLONE_NEWNS)


def _continue_in_child() -> None:
    """The child goes on; we reap, as the first process of a namespace must, and end with it."""
    child = os.fork()
    if child == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return

    def end(_number: int, _frame: object) -> None:
        os.kill(child, signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _skeleton(keep: list[Path], *, machine: bool) -> None:
    """A root of read-only system folders and empty places; all else of the machine is out of sight."""
    unshare(CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    # cgroups live in /sys; only the machine's root could use them.
    names = [name for name in (*SYSTEM, *(["/sys"] if machine else [])) if Path(name).exists()]
    links = [(name, str(Path(name).readlink())) for name in names if Path(name).is_symlink()]
    links += [(str(path), str(path.readlink())) for path in Path("/etc/alternatives").glob("*") if path.is_symlink()]
    trees = [(name, _tree(name)) for name in names if not Path(name).is_symlink()]
    trees += [(str(path), _tree(str(path))) for path in keep]
    devices = [(f"/dev/{name}", clone_mount(f"/dev/{name}", recursive=False)) for name in DEVICES]
    settings = _settings()
    mount("cage", BASE, "tmpfs", MS_NOSUID, "mode=755,size=64m")
    # Places for what is kept: later nobody may make them at the top.
    for place in (*PLACES, "/etc/alternatives", "/dev/shm", "/sys", "/kept", *map(str, keep)):
        Path(BASE + place).mkdir(parents=True, exist_ok=True)
    for number, (name, tree) in enumerate(trees):
        # A place of ours is mounted over later; what lies below one waits elsewhere.
        _hang(tree, f"/kept/{number - len(trees) + len(keep)}" if number >= len(trees) - len(keep) else name)
    for name, tree in devices:
        Path(BASE + name).touch()
        attach(tree, BASE + name)
    for name, target in (*links, *((f"/dev/{n}", f"/proc/self/fd{t}") for n, t in _STANDARD)):
        Path(BASE + name).symlink_to(target)
    for name, content in settings.items():
        Path(BASE + name).parent.mkdir(parents=True, exist_ok=True)
        Path(BASE + name).write_bytes(content)
    for name in ("/etc/shadow", "/dev/vda", "/sys/cage" if not machine else "/etc/cage"):
        Path(BASE + name).touch()
        Path(BASE + name).chmod(0o666)
    Path(BASE + "/dev/shm").chmod(0o1777)
    pivot_to(BASE)
    leave_old_root()


_STANDARD = (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2"))


def _tree(path: str) -> int:
    tree = clone_mount(path, recursive=True)
    if path not in ("/proc", "/sys"):
        set_mount_attributes(tree, ATTR_RDONLY, recursive=True)
    return tree


def _hang(tree: int, path: str) -> None:
    Path(BASE + path).mkdir(parents=True, exist_ok=True)
    attach(tree, BASE + path)
    os.close(tree)


def _put_back(keep: list[Path]) -> None:
    for number, path in enumerate(keep):
        path.mkdir(parents=True, exist_ok=True)
        mount(f"/kept/{number}", str(path), None, 4096 | MS_REC)


def _settings() -> dict[str, bytes]:
    """What is readable to all in /etc, links followed, and small."""
    found: dict[str, bytes] = {}
    for name in ("fonts", "ssl/certs"):
        for path in Path("/etc", name).rglob("*"):
            with suppress(OSError):
                if path.is_file() and path.stat().st_size < 1 << 20:
                    found[str(path)] = path.read_bytes()
    for name in ("ld.so.cache", "localtime", "mime.types", "passwd", "group", "hosts", "nsswitch.conf"):
        path = Path("/etc", name)
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o004:
            found[str(path)] = path.read_bytes()
    return found


def _set_up_network() -> None:
    """Loopback, with two more addresses: a machine's own, and the one that clouds answer questions at."""
    loopback_up()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for name, address in ((b"lo:1", "10.11.12.13"), (b"lo:2", "169.254.169.254")):
            place = struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(address))
            fcntl.ioctl(any_socket, 0x8916, place)
    set_hostname(os.environ.get(HOSTNAME, "cage").encode())


def _become(uid: int) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    drop_capabilities()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.environ["HOME"] = "/home"


def python_folders(python: Path) -> list[Path]:
    """What must be in the cage for this Python to run."""
    real = python.resolve()
    folders = {python.parent.parent, real.parent.parent}
    return sorted(folder for folder in folders if not folder.is_relative_to("/usr") and shutil.which(str(real)))
