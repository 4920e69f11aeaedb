"""Calls one function of a source text. Reports its results, and the files, processes and network calls it touched."""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
import traceback
from typing import Any, cast

from .program_io import Operation, Refused

_LONGEST = 4000
_MOST = 20
"""The most touched things that are named."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NETWORK = (
    *("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"),
    *("socket.gethostbyname", "socket.gethostbyaddr", "urllib.Request"),
)
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
_CHANGES = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod"),
    *("os.chown", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile"),
)


class _Touched:
    """The interpreter's audit events for files, processes and the network while the function is loaded and runs."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._own = tuple(
            {f"{os.path.realpath(path)}/" for path in (sys.prefix, sys.base_prefix, *sys.path) if path}
            | {"/proc/", "/sys/", "/dev/", "/usr/share/zoneinfo/"}
        )

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | bytes):
            path = os.fsdecode(args[0])
            if args[2] & _WRITES and not path.startswith("/dev/"):
                self._add(f"write {path}")
            elif not self._is_own(path):
                self._add(f"read {path}")
        elif event in ("os.listdir", "os.scandir") and isinstance(args[0], str) and not self._is_own(f"{args[0]}/"):
            self._add(f"read {args[0]}")
        elif event in _NETWORK:
            self._add(f"network {event}")
        elif event in _PROCESSES:
            self._add(f"process {event}")
        elif event in _CHANGES:
            self._add(f"write {args[0]}")

    def _is_own(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self._own) or path == "/etc/localtime"

    def _add(self, what: str) -> None:
        if len(self.seen) < _MOST and what not in self.seen:
            self.seen.append(what[:300])


def call(source: str, function: str, calls: list[dict[str, Any]], repeat: bool = False) -> dict[str, Any]:
    """Load the source and make the calls. With `repeat`, each is made twice, and differing results are reported."""
    sys.dont_write_bytecode = True
    touched = _Touched()
    sys.addaudithook(touched.note)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        names: dict[str, Any] = {"__name__": "skill"}
        try:
            exec(compile(source, "<skill>", "exec", dont_inherit=True), names)
        except BaseException as error:
            return {"error": f"it could not be loaded: {_describe(error)}", "touched": touched.seen}
        outcomes = [_outcome(names[function], args) for args in calls]
        again = [_outcome(names[function], args) for args in calls] if repeat else outcomes
    for first, second in zip(outcomes, again, strict=True):
        if first.get("value") != second.get("value"):
            first["varies"] = True
    return {"outcomes": outcomes, "touched": touched.seen, "printed": printed.getvalue()[:_LONGEST]}


def _outcome(function: Any, args: dict[str, Any]) -> dict[str, Any]:
    try:
        result = function(**args)
        return {"value": _plain(result, 0), "shown": repr(result)[:_LONGEST]}
    except BaseException as error:
        return {"failed": _describe(error)}


def _describe(error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<skill>"]
    where = f" (line {lines[-1]})" if lines else ""
    name = "" if isinstance(error, Refused) else f"{type(error).__name__}: "
    return f"{name}{str(error)[:500]}{where}"


def _plain(value: object, depth: int) -> Any:
    """Convert a value to JSON's types; a number that is not finite becomes null."""
    if depth > 50:
        raise Refused("the result is nested too deeply for JSON")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and type(value) in (int, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(one, depth + 1) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one, depth + 1) for one in cast("list[Any]", value)]
    for method in ("tolist", "item", "isoformat"):  # arrays, their numbers, and dates
        if hasattr(value, method):
            return _plain(getattr(value, method)(), depth + 1)
    raise Refused(f"the result holds a {type(value).__name__}, which JSON cannot represent; return plain values")


OPERATIONS: dict[str, Operation] = {"call": call}
