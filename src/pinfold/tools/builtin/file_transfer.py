"""Whole files of the workspace, put in and got out by clients outside the session."""

from __future__ import annotations

import base64
import binascii
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec.structs import replace

from pinfold.text import cap_text
from pinfold.tools.builtin.files import write_reach
from pinfold.tools.ports import Inside
from pinfold.tools.results import BadCall, Result
from pinfold.tools.tool import Tool, tool

TRANSFER_S = 30.0
LARGEST = 8 << 20
"""Bytes of a file."""
# The guest's own guarded access, as a program: it has no package around it there.
_FILES = files("pinfold") / "guest" / "toolbox" / "files.py"
_PROGRAM = """
def _transfer():
    files, (do, path) = Files(os.getcwd()), sys.argv[1:]
    try:
        if do == "put":
            files.put(path, sys.stdin.buffer.read())
        else:
            sys.stdout.buffer.write(files.get(path, {limit}))
    except Refused as refused:
        sys.stderr.write(str(refused))
        return 1
    return 0

sys.exit(_transfer())
"""
_WORDS = 1000


class FileTransfer:
    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    async def get_file(self, path: str) -> Result:
        """Take a whole file of the workspace out, as base64.

        Args:
            path: Relative to the workspace.
        """
        data = await self._run_transfer("get", path)
        return Result(text=f"{path}: {len(data):,} bytes", value=base64.b64encode(data).decode())

    async def put_file(self, path: str, content: str | None = None, base64: str | None = None) -> str:
        """Write a whole file of the workspace, from text or base64.

        Args:
            path: Relative to the workspace.
        """
        data = _decode_content(content, base64)
        await self._run_transfer("put", path, data)
        return f"wrote {path}: {len(data):,} bytes"

    async def _run_transfer(self, do: str, path: str, data: bytes = b"") -> bytes:
        if "\0" in path:
            raise BadCall("a path cannot hold a NUL")
        argv = ["python3", "-I", "-S", "-c", _source(), do, path]
        ran = await self._inside.command(argv, timeout_s=TRANSFER_S, stdin=data)
        if ran.status != "ok":
            said = ran.stderr.decode("utf-8", "replace").strip()
            late = f"it took longer than {TRANSFER_S:g} s and was stopped" if ran.status == "timeout" else ""
            raise BadCall(cap_text(late or said or "the session could not do this", _WORDS))
        if ran.notices:
            raise BadCall("; ".join(ran.notices))
        return ran.stdout


@cache
def _source() -> str:
    return _FILES.read_text("utf-8") + _PROGRAM.format(limit=LARGEST)


def _decode_content(content: str | None, encoded: str | None) -> bytes:
    if (content is None) == (encoded is None):
        raise BadCall("give either content, which is text, or base64")
    try:
        data = content.encode() if content is not None else base64.b64decode(encoded or "", validate=True)
    except UnicodeEncodeError as error:
        raise BadCall(f"content holds half a surrogate pair at character {error.start}") from error
    except (binascii.Error, ValueError) as error:
        raise BadCall(f"base64 cannot be decoded: {error}") from error
    if len(data) > LARGEST:
        raise BadCall(f"the file has {len(data):,} bytes; the limit is {LARGEST:,}")
    return data


def transfer_tools(inside: Inside) -> list[Tool[..., Any]]:
    """`get_file` and `put_file`."""
    transfer = FileTransfer(inside)
    shared: dict[str, Any] = {"timeout_s": TRANSFER_S + 10, "parallel_safe": False, "server": "filesystem"}
    get = tool(effect="pure", reach="files", **shared)(transfer.get_file)
    put = tool(effect="once", reach="workspace", **shared)(transfer.put_file)
    return [get, replace(put, goes=write_reach, returns=None)]
