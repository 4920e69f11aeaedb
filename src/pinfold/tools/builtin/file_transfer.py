"""Files of the workspace, brought in and taken out whole by whoever uses the session from outside."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pinfold.events import Json, Reach
from pinfold.text import cap_text
from pinfold.tools.errors import BadCall
from pinfold.tools.ports import Inside
from pinfold.tools.results import Result
from pinfold.tools.tool import Tool

CARRY_S = 30.0
LARGEST = 8 << 20
"""Bytes of a file that is carried."""
# The guest's own guarded access, as a program: it has no package around it there.
_FILES = files("pinfold") / "guest" / "toolbox" / "files.py"
_PROGRAM = """
def _carry():
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

sys.exit(_carry())
"""
_WORDS = 1000
_PATH: Mapping[str, Json] = {"type": "string", "description": "Relative to the workspace."}


class Carrying:
    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    async def get_file(self, path: str) -> Result:
        data = await self._run_transfer("get", path)
        return Result(text=f"{path}: {len(data):,} bytes", value=base64.b64encode(data).decode())

    async def put_file(self, path: str, content: str | None = None, base64: str | None = None) -> str:
        data = _decode_content(content, base64)
        await self._run_transfer("put", path, data)
        return f"wrote {path}: {len(data):,} bytes"

    async def _run_transfer(self, do: str, path: str, data: bytes = b"") -> bytes:
        if "\0" in path:
            raise BadCall("a path cannot hold a NUL")
        argv = ["python3", "-I", "-S", "-c", _source(), do, path]
        ran = await self._inside.command(argv, timeout_s=CARRY_S, stdin=data)
        if ran.status != "ok":
            said = ran.stderr.decode("utf-8", "replace").strip()
            late = f"it took longer than {CARRY_S:g} s and was stopped" if ran.status == "timeout" else ""
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


def carrying_tools(inside: Inside) -> list[Tool[..., Any]]:
    """`get_file` and `put_file`."""
    carrying = Carrying(inside)
    return [
        Tool[..., Any](
            function=carrying.get_file,
            name="get_file",
            description="Take a whole file of the workspace out, as base64.",
            effect="pure",
            timeout_s=CARRY_S + 10,
            parameters=_schema("path", path=_PATH),
            reach="files",
            server="filesystem",
        ),
        Tool[..., Any](
            function=carrying.put_file,
            name="put_file",
            description="Write a whole file of the workspace, from text or base64.",
            effect="once",
            timeout_s=CARRY_S + 10,
            parameters=_schema("path", path=_PATH, content={"type": "string"}, base64={"type": "string"}),
            reach="workspace",
            goes=_write_reach,
            server="filesystem",
        ),
    ]


def _schema(*required: str, **properties: Mapping[str, Json]) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _write_reach(args: Mapping[str, Json]) -> tuple[Reach, str]:
    return "workspace", str(args.get("path", ""))
