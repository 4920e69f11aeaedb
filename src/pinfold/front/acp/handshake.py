"""The first answer to an editor, given before heavy modules are loaded, and the streams of the protocol.

Imports only the standard library, because editors wait for this answer when they start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import BinaryIO

from pinfold import __version__

VERSION = 1
"""The version of the protocol; also the answer to editors that ask for a later one."""
SIGN_IN = "pinfold"
_NOTHING: Mapping[str, object] = {}
_CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": False},
    # Objects, never `true`: some editors refuse anything else.
    "sessionCapabilities": dict.fromkeys(("list", "delete", "fork", "resume", "close"), _NOTHING),
}
_WORDS = "Uses the models and keys that Pinfold has on this machine: pinfold doctor, pinfold secret."


def describe_agent() -> dict[str, object]:
    """Return the answer to `initialize`."""
    return {
        "protocolVersion": VERSION,
        "agentCapabilities": _CAPABILITIES,
        "agentInfo": {"name": "pinfold", "title": "Pinfold", "version": __version__},
        "authMethods": [{"id": SIGN_IN, "name": "Models of this machine", "description": _WORDS}],
    }


def has_forms(params: Mapping[str, object]) -> bool:
    """True if the editor can show forms."""
    match params.get("clientCapabilities"):
        case {"elicitation": {"form": {}}}:
            return True
        case _:
            return False


def answer_initialize(reads: BinaryIO, writes: BinaryIO) -> tuple[bytes, Mapping[str, object]]:
    """Read the first line; if it is `initialize`, answer it and return its parameters, else return the line."""
    line = reads.readline()
    try:
        message = json.loads(line)
    except ValueError:
        return line, {}
    match message:
        case {"method": "initialize", "id": int() | str() as id_, "params": {"protocolVersion": int(), **rest}}:
            answer = {"jsonrpc": "2.0", "id": id_, "result": describe_agent()}
            writes.write(json.dumps(answer).encode() + b"\n")
            writes.flush()
            return b"", rest
        case _:
            return line, {}


@contextmanager
def own_streams() -> Generator[tuple[BinaryIO, BinaryIO]]:
    """Reserve standard input and output for the protocol.

    Inside, started programs read nothing from stdin, and what is printed goes to stderr.
    """
    reads, writes = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield reads, writes
    finally:
        with suppress(OSError):
            writes.close()
