"""The tools for files and folders. Each runs inside the session, and so reaches exactly what its code can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from pinfold.events import Effect, Json, Reach
from pinfold.tools.builtin.data import VIEW_S, DataView
from pinfold.tools.builtin.declared import DESCRIPTIONS, PARAMETERS, UNTOLD
from pinfold.tools.builtin.pages import page
from pinfold.tools.builtin.programs import Program, Reply, ask
from pinfold.tools.errors import BadCall
from pinfold.tools.ports import Inside, Kept
from pinfold.tools.tool import Tool

Found: TypeAlias = Literal["lines", "files", "count"]
QUICK_S = 30.0
"""For what a program of the toolbox does; each stops by itself before that."""
SPARE_S = 10.0
"""More for a tool than for its program, so that it can say what happened."""
READ = 10_000
"""Bytes of a file that are shown at once."""
LISTED = 500
WRITES = ("write_file", "edit_file", "apply_patch")


class Measured(Struct, frozen=True, kw_only=True):
    """What lies at and below some paths."""

    files: int
    bytes: int
    more: bool = False
    """There is more than was counted."""


class FileTools:
    def __init__(self, inside: Inside, kept: Kept | None = None) -> None:
        self._inside = inside
        self._kept = kept

    async def list_files(self, path: str = ".") -> str:
        found = await self.list_directory(path)
        entries = found["entries"]
        lines = [_line(entry) for entry in entries[:LISTED]]
        rest = len(entries) - len(lines) + found.get("more", 0)
        if rest:
            lines.append(f"[and {rest:,} more; glob finds some by name]")
        return "\n".join(lines) if lines else f"[{path} is empty]"

    async def list_directory(self, path: str = ".") -> dict[str, Json]:
        """`{"entries": [{"name", "type", "size"}]}`; type is file, directory, link or other. `more` counts those left out."""
        reply = await ask(self._inside, "file_reader", "entries", {"path": path}, timeout_s=QUICK_S)
        entries = [_entry(one) for one in _list(reply.get("entries"))]
        more = reply.count("more")
        return {"entries": entries, "more": more} if more else {"entries": entries}

    async def read_file(self, path: str, start_line: int = 1, max_lines: int | None = None) -> str:
        if start_line < 1:
            raise BadCall("start_line counts from 1")
        if max_lines is not None and max_lines < 1:
            raise BadCall("max_lines is at least 1")
        handle = path.removeprefix("blob:")
        if path.startswith(("blob:", "sha256:")):
            return self._reopen_result(handle, start_line, max_lines)
        given = {"path": path, "start_line": start_line, "max_lines": max_lines, "most": READ}
        return (await ask(self._inside, "file_reader", "read", given, timeout_s=QUICK_S)).text()

    def _reopen_result(self, handle: str, start_line: int, max_lines: int | None) -> str:
        data = self._kept.get(handle) if self._kept else None
        if data is None:
            raise BadCall(f"nothing is kept as {handle!r}; the end of a cut result names its handle")
        return page(data, handle, start_line, max_lines, READ)

    async def write_file(self, path: str, content: str, create_dirs: bool = True) -> str:
        given = {"path": path, "content": content, "create_dirs": create_dirs, "dry": False}
        return _reply_text(await ask(self._inside, "file_writer", "write", given, timeout_s=QUICK_S))

    async def edit_file(self, path: str, old: str, new: str, expected_matches: int = 1) -> str:
        if expected_matches < 1:
            raise BadCall("expected_matches is at least 1")
        given = {"path": path, "old": old, "new": new, "expected_matches": expected_matches, "dry": False}
        return _reply_text(await ask(self._inside, "file_writer", "edit", given, timeout_s=QUICK_S))

    async def apply_patch(self, patch: str) -> str:
        given = {"patch": patch, "dry": False}
        reply = await ask(self._inside, "patcher", "apply", given, timeout_s=QUICK_S)
        if reply.notices and "\n" in reply.text():
            raise BadCall(f"{'; '.join(reply.notices)}; what else the patch says was done:\n{reply.text()}")
        return _reply_text(reply)

    async def glob(self, pattern: str, path: str = ".") -> str:
        given = {"pattern": pattern, "path": path}
        return (await ask(self._inside, "file_finder", "glob", given, timeout_s=QUICK_S)).text()

    async def grep(self, pattern: str, path: str = ".", output_mode: Found = "lines") -> str:
        given = {"pattern": pattern, "path": path, "output_mode": output_mode}
        return (await ask(self._inside, "text_search", "grep", given, timeout_s=QUICK_S)).text()

    def tools(self) -> list[Tool[..., Any]]:
        view = DataView(self._inside).data_view
        made: dict[str, Callable[..., Any]] = {
            "list_files": self.list_files,
            "list_directory": self.list_directory,
            "read_file": self.read_file,
            "write_file": self.write_file,
            "edit_file": self.edit_file,
            "apply_patch": self.apply_patch,
            "glob": self.glob,
            "grep": self.grep,
            "data_view": view,
        }
        return [
            Tool[..., Any](
                function=function,
                name=name,
                description=DESCRIPTIONS[name],
                effect=_effect(name),
                timeout_s=(VIEW_S if name == "data_view" else QUICK_S) + SPARE_S,
                parallel_safe=False,
                parameters=PARAMETERS[name],
                reach="workspace" if name in WRITES else "files",
                goes=_write_reach if name in WRITES else None,
                server="data" if name == "data_view" else "filesystem",
                untold=UNTOLD.get(name, ()),
            )
            for name, function in made.items()
        ]


def file_tools(inside: Inside, kept: Kept | None = None) -> list[Tool[..., Any]]:
    """The tools for files and tables of a session; `kept` is what `read_file("blob:HANDLE")` opens again."""
    return FileTools(inside, kept).tools()


async def list_directory(inside: Inside, path: str) -> dict[str, Json]:
    """`{"entries": [{"name", "type", "size"}]}`; type is file, directory, link or other. `more` counts those left out."""
    return await FileTools(inside).list_directory(path)


async def preview(inside: Inside, tool: str, args: Json) -> str:
    """What a call of `write_file`, `edit_file` or `apply_patch` would change, as a unified diff; nothing is written.

    Empty for other tools. Raises BadCall where the call would fail, and ToolFailed for arguments that are wrong.
    """
    known = next((one for one in FileTools(inside).tools() if one.name == tool), None)
    if tool not in WRITES or known is None:
        return ""
    given = {**known.check_arguments(args), "dry": True}
    program, do = ("patcher", "apply") if tool == "apply_patch" else ("file_writer", tool.removesuffix("_file"))
    reply = await ask(inside, cast(Program, program), do, given, timeout_s=QUICK_S)
    return reply.text("diff")


async def measure(inside: Inside, paths: Sequence[str]) -> Measured:
    """How much lies at and below paths and patterns inside; links are not followed."""
    reply = await ask(inside, "file_finder", "measure", {"paths": list(paths)}, timeout_s=QUICK_S)
    return Measured(files=reply.count("files"), bytes=reply.count("bytes"), more=reply.flag("more"))


def _write_reach(args: Mapping[str, Json]) -> tuple[Reach, str]:
    return "workspace", str(args.get("path", ""))


def _effect(name: str) -> Effect:
    return "once" if name in WRITES else "pure"


def _reply_text(reply: Reply) -> str:
    """What was done; what the sandbox took back of it is said and makes it fail."""
    if reply.notices:
        raise BadCall("; ".join(reply.notices))
    return reply.text()


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise BadCall("the session gave no answer that can be read")
    return cast(list[Json], value)


def _entry(value: Json) -> dict[str, Json]:
    match value:
        case {"name": str(name), "type": "file" | "directory" | "link" | "other" as kind, "size": int(size)}:
            return {"name": name, "type": kind, "size": size}
        case _:
            raise BadCall("the session gave no answer that can be read")


def _line(entry: Mapping[str, Json]) -> str:
    match entry["type"]:
        case "directory":
            return f"{entry['name']}/"
        case "file":
            return f"{entry['name']}  {entry['size']:,}"
        case other:
            return f"{entry['name']}  ({other})"
