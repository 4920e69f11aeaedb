"""The tool `shell`: runs commands in the session's sandbox, or on the host if policy has allowed it."""

from __future__ import annotations

import math
import os.path
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal

from msgspec.structs import replace

from pinfold.events import Json, Reach
from pinfold.text import NO_OUTPUT
from pinfold.tools.ports import Host, Inside, Ran
from pinfold.tools.results import BadCall, Result
from pinfold.tools.tool import AnyTool, tool

SHELL_S = 30.0
MOST_S = 600.0
GRACE_S = 30.0
"""Extra time for the session to report how the command ended."""
_LOOK_TENTHS = 10
"""Tenths of a second to wait for a background job before its first lines are shown."""
_TAIL_LINES = 20
_BACKGROUND = re.compile(r"(?<![&\\>|])&\s*\Z")
_FAILED = r"\[exit code (?!0\])\d+\]\s*\Z"
_BASH = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$1"; else exec /bin/sh -c "$1"; fi'
# $1 is the command. The first free log file determines the job's number. The job is a process group of its own, and
# the last line of its log is its exit code.
_JOB = r"""
jobs="${TMPDIR:-/tmp}/jobs"
mkdir -p "$jobs" || exit 125
n=1
until ( set -C; : > "$jobs/$n.log" ) 2>/dev/null; do n=$((n + 1)); [ $n -lt 10000 ] || exit 125; done
shell=/bin/sh; [ -x /bin/bash ] && shell=/bin/bash
own=; command -v setsid > /dev/null && own=setsid
$own /bin/sh -c '"$1" -c "$2"; echo "[exit code $?]"' job "$shell" "$1" >> "$jobs/$n.log" 2>&1 < /dev/null &
pid=$!
look=0
while [ $look -lt @LOOK@ ] && kill -0 $pid 2>/dev/null; do sleep 0.1; look=$((look + 1)); done
kill -0 $pid 2>/dev/null && state=runs || state=ended
echo "$n $pid $state $jobs/$n.log"
tail -n @TAIL@ "$jobs/$n.log"
""".replace("@LOOK@", str(_LOOK_TENTHS)).replace("@TAIL@", str(_TAIL_LINES))


def shell_tool(inside: Inside, workspace: str, *, host: Host | None = None, default_s: float = SHELL_S) -> AnyTool:
    async def shell(
        command: str,
        workdir: str | None = None,
        timeout_s: float | None = None,
        where: Literal["sandbox", "host"] = "sandbox",
    ) -> Result:
        """Run bash in the workspace, or on the user's host."""
        folder = _folder(workdir, workspace)
        limit_s = default_s if timeout_s is None else min(timeout_s, MOST_S)
        if timeout_s is not None and not (math.isfinite(timeout_s) and timeout_s > 0):
            raise BadCall("timeout_s must be more than 0")
        if not command.strip():
            raise BadCall("the command is empty")
        if "\0" in command:
            raise BadCall("the command holds a NUL character; leave it out")
        if where == "host":
            if host is None:
                raise BadCall("no command can be run on the host in this session; leave `where` out")
            return _command_result(await host.run(command, workdir=folder, timeout_s=limit_s), limit_s)
        if background := _BACKGROUND.search(command):
            line = command[: background.start()].rstrip()
            if not line:
                raise BadCall("there is no command before the &")
            ran = await inside.command(["/bin/sh", "-c", _JOB, "sh", line], timeout_s=default_s, workdir=folder)
            return _job(ran, default_s)
        ran = await inside.command(["/bin/sh", "-c", _BASH, "sh", command], timeout_s=limit_s, workdir=folder)
        return _command_result(ran, limit_s)

    made = tool(effect="once", reach="workspace", timeout_s=MOST_S + GRACE_S, server="system")(shell)
    return replace(made, goes=reach_of, untold=("workdir", "where.default"))


def reach_of(args: Mapping[str, Json]) -> tuple[Reach, str]:
    """Return the reach of a call; any `where` other than "sandbox" counts as the host."""
    return ("workspace" if args.get("where", "sandbox") == "sandbox" else "host"), ""


def _folder(workdir: str | None, workspace: str) -> str:
    """Return `workdir` relative to the workspace. Raises BadCall. Links are left to the sandbox's own checks."""
    if not workdir or workdir == ".":
        return ""
    if "\0" in workdir:
        raise BadCall("workdir holds a NUL character; leave it out")
    path = PurePosixPath(os.path.normpath(os.path.join(workspace, workdir)))  # noqa: PTH118 - `..` must go first
    if not path.is_relative_to(workspace):
        raise BadCall(f"workdir {workdir!r} is outside the workspace; name a folder within {workspace}")
    folder = str(path.relative_to(workspace))
    return "" if folder == "." else folder


def _command_result(ran: Ran, limit_s: float) -> Result:
    out, err = ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace")
    parts = [out.rstrip("\n")] if out.strip("\n") else []
    if err.strip("\n"):
        parts.append("[stderr]\n" + err.rstrip("\n"))
    if ran.dropped_bytes:
        parts.append(f"[{ran.dropped_bytes:,} bytes of output were beyond the limit and are gone]")
    if ending := _ending(ran, limit_s):
        parts.append(ending)
    parts.extend(f"[{notice}]" for notice in ran.notices)
    value = {"status": ran.status, "code": ran.code, "stdout": out, "stderr": err}
    return Result(text="\n".join(parts) or NO_OUTPUT, value=value, outcome=ran.status)


def _ending(ran: Ran, limit_s: float) -> str:
    match ran.status, ran.code:
        case "ok", _:
            return ""
        case "timeout", _:
            more = "allow more with timeout_s, or end the command with & to run it in the background"
            return f"[not done after {limit_s:g} s, and stopped; {more}]"
        case _, int(code) if code < 0:
            return f"[ended by signal {-code}]"
        case _, int(code):
            return f"[exit code {code}]"
        case _:
            return "[it did not run to its end]"


def _job(ran: Ran, limit_s: float) -> Result:
    head, _, log = ran.stdout.decode("utf-8", "replace").partition("\n")
    match head.split(maxsplit=3):
        case [number, pid, state, path] if ran.status == "ok":
            pass
        case _:
            return _command_result(ran, limit_s)
    now = "runs in the background" if state == "runs" else "has ended"
    parts = [f"[job {number}, process {pid}, {now}; log {path}]"]
    if log.strip("\n"):
        parts.append(log.rstrip("\n"))
    if state == "runs":
        parts.append(f"[to look: tail -n {_TAIL_LINES} {path}; to end it: kill -- -{pid}]")
    value = {"job": int(number), "pid": int(pid), "running": state == "runs", "log": path, "output": log}
    has_failed = state != "runs" and re.search(_FAILED, log)
    return Result(text="\n".join(parts), value=value, outcome="error" if has_failed else "ok")
