"""What every program here shares: a request as JSON on stdin, the reply as JSON on stdout."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Operation: TypeAlias = Callable[..., dict[str, Any]]


class Refused(Exception):
    """A request was refused; the message says what is wrong and what to do."""


def answer(operations: dict[str, Operation]) -> None:
    request = json.loads(sys.stdin.buffer.read())
    try:
        reply = operations[request["do"]](**request["with"])
    except Refused as refused:
        reply = {"error": str(refused)}
    except OSError as error:
        reply = {"error": describe_error(error)}
    except MemoryError:
        reply = {"error": "this takes more memory than the session may use"}
    # ASCII, because names that are not UTF-8 contain lone surrogates.
    sys.stdout.write(json.dumps(reply, allow_nan=False))


def describe_error(error: OSError) -> str:
    """Describe an OSError in one line."""
    name = error.filename if isinstance(error.filename, str) else "it"
    if error.errno in (errno.EROFS, errno.EBUSY):
        return f"{display_path(name)} is protected or read-only: it cannot be changed from inside the session"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{display_path(name)}: permission denied"
    return f"{display_path(name)}: {error.strerror or error}"


def display_path(path: str) -> str:
    """Return a path as the model would write it: relative if it is in the working folder."""
    here = os.getcwd()
    if path == here:
        return "."
    return path[len(here) + 1 :] if path.startswith(f"{here}/") else path


def format_size(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    amount = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.95 or unit == "TB":
            return f"{amount:.1f} {unit}"
    raise AssertionError
