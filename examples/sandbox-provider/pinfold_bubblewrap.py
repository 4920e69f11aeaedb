"""A sandbox provider in a package of its own: every session's interpreter runs in bubblewrap.

Namespaces, a read-only system, no network. No system call filter, and secrets in the workspace are not masked.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from pinfold.sandbox import Capabilities, SandboxUnavailable, Session, Spec
from pinfold.sandbox.guests import GuestProgram, open_guest

SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/passwd")
SHUT = ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL")


class Bubblewrap:
    name = "bubblewrap"
    notice = "bubblewrap: no system call filter; secrets in the workspace can be read by the code"
    capabilities = Capabilities(isolated=True, sockets=True, mounts=True, calls=True, commands=True)

    async def open(self, spec: Spec) -> Session:
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise SandboxUnavailable("bwrap is not installed; try `apt install bubblewrap`")
        return await open_guest(spec, self.capabilities, lambda program: command(bwrap, spec, program))


def command(bwrap: str, spec: Spec, program: GuestProgram) -> Sequence[str]:
    """Return the command line. Ctrl-C reaches the whole process group: bwrap ignores it, the guest handles it."""
    outside = ["env", "--ignore-signal=INT", "prlimit", f"--data={spec.limits.memory_bytes}", "--core=0"]
    shown = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - inside
    for path in SYSTEM:
        shown += ["--ro-bind-try", path, path]
    for path in map(str, program.needs):
        shown += ["--ro-bind", path, path]
    for name, path in spec.data.items():
        shown += ["--ro-bind", str(path), f"/mnt/datasets/{name}"]
    workspace, scratch = str(program.workspace), str(program.scratch)
    shown += ["--bind" if spec.writable else "--ro-bind", workspace, workspace]
    shown += ["--bind", scratch, scratch, "--chdir", workspace]
    return [*outside, bwrap, *SHUT, *shown, "--", *program.argv]
