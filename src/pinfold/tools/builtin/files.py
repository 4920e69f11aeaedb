"""The tools for files, folders and tables. They run inside the session and reach exactly what its code can."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pinfold.events import Json, Reach, convert
from pinfold.text import cap_text
from pinfold.tools.builtin.programs import Program, Reply, ask
from pinfold.tools.ports import Inside, Kept
from pinfold.tools.results import BadCall, Result
from pinfold.tools.tool import AnyTool, tool

Found: TypeAlias = Literal["lines", "files", "count"]
View: TypeAlias = Literal["peek", "shape", "columns", "stats"]
QUICK_S = 30.0
"""Limit for a toolbox program; each stops by itself before that."""
VIEW_S = 300.0
SPARE_S = 10.0
"""Extra time for a tool beyond its program's limit, so that it can report what happened."""
READ = 10_000
"""Maximum bytes of a file shown at once."""
LISTED = 500
KEPT = 64
"""Maximum number of cached table views; each is a few kilobytes."""
KEPT_CHARACTERS = 1 << 20
WRITES = ("write_file", "edit_file", "apply_patch")
UNTOLD = {"read_file": ("max_lines", "start_line.default"), "edit_file": ("expected_matches",)}
"""Parts omitted from the schemas the model sees."""
TRANSFER_S = 30.0
TRANSFER_BYTES = 8 << 20
"""Maximum size of a file."""
# The guest's own guarded file access, run as a single program.
_FILE_ACCESS = files("pinfold") / "guest" / "toolbox" / "files.py"
_TRANSFER = """
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
_TRANSFER_WORDS = 1000


class Measured(Struct, frozen=True, kw_only=True):
    """Number and size of the files at and below some paths."""

    files: int
    bytes: int
    more: bool = False
    """True if not everything was counted."""


class _Entry(Struct, frozen=True):
    name: str
    type: Literal["file", "directory", "link", "other"]
    size: int


class FileTools:
    def __init__(self, inside: Inside, kept: Kept | None = None) -> None:
        self._inside = inside
        self._kept = kept

    async def _ask(self, program: Program, do: str, **given: Json) -> Reply:
        return await ask(self._inside, program, do, given, timeout_s=QUICK_S)

    async def list_files(self, path: str = ".") -> str:
        """List a folder: folders end in a slash, files have their size in bytes."""
        found = await self.list_directory(path)
        entries = found["entries"]
        lines = [_line(entry) for entry in entries[:LISTED]]
        rest = len(entries) - len(lines) + found.get("more", 0)
        if rest:
            lines.append(f"[and {rest:,} more; glob finds some by name]")
        return "\n".join(lines) if lines else f"[{path} is empty]"

    async def list_directory(self, path: str = ".") -> dict[str, Json]:
        """List a folder: {"entries": [{"name", "type", "size"}]}."""
        reply = await self._ask("file_reader", "entries", path=path)
        try:
            entries = msgspec.to_builtins(convert(reply.get("entries"), list[_Entry]))
        except msgspec.ValidationError:
            raise BadCall("the session's answer cannot be read") from None
        more = reply.count("more")
        return {"entries": entries, "more": more} if more else {"entries": entries}

    async def read_file(self, path: str, start_line: int = 1, max_lines: int | None = None) -> str:
        """Read a text file."""
        if start_line < 1:
            raise BadCall("start_line counts from 1")
        if max_lines is not None and max_lines < 1:
            raise BadCall("max_lines is at least 1")
        if path.startswith(("blob:", "sha256:")):
            handle = path.removeprefix("blob:")
            data = self._kept(handle) if self._kept else None
            if data is None:
                raise BadCall(f"nothing is kept as {handle!r}; the end of a cut result names its handle")
            return _page(data, handle, start_line, max_lines)
        reply = await self._ask("file_reader", "read", path=path, start_line=start_line, max_lines=max_lines, most=READ)
        return reply.text()

    async def write_file(self, path: str, content: str, create_dirs: bool = True) -> str:
        """Write a whole file in UTF-8, new or in place of the old one. To change a part, use edit_file."""
        given = {"path": path, "content": content, "create_dirs": create_dirs}
        return _reply_text(await self._ask("file_writer", "write", **given, dry=False))

    async def edit_file(self, path: str, old: str, new: str, expected_matches: int = 1) -> str:
        """Replace exact text in a file."""
        if expected_matches < 1:
            raise BadCall("expected_matches is at least 1")
        given = {"path": path, "old": old, "new": new, "expected_matches": expected_matches}
        return _reply_text(await self._ask("file_writer", "edit", **given, dry=False))

    async def apply_patch(self, patch: str) -> str:
        """Apply a unified diff (git's too), or a patch between *** Begin Patch and *** End Patch, to any number of files:
        all of it or nothing."""
        reply = await self._ask("patcher", "apply", patch=patch, dry=False)
        if reply.notices and "\n" in reply.text():
            raise BadCall(f"{'; '.join(reply.notices)}; the rest of the patch was applied:\n{reply.text()}")
        return _reply_text(reply)

    async def glob(self, pattern: str, path: str = ".") -> str:
        """Find files and folders by name: `**/*.py`, `src/*.{ts,tsx}`. Hidden ones only if the pattern names them."""
        return (await self._ask("file_finder", "glob", pattern=pattern, path=path)).text()

    async def grep(self, pattern: str, path: str = ".", output_mode: Found = "lines") -> str:
        """Find lines by a regular expression, as `path:line:text`; or only the files, or the count in each.

        Args:
            pattern: a regular expression
        """
        return (await self._ask("text_search", "grep", pattern=pattern, path=path, output_mode=output_mode)).text()

    def tools(self) -> list[AnyTool]:
        read = (self.list_files, self.list_directory, self.read_file)
        write = (self.write_file, self.edit_file, self.apply_patch)
        return [_as_tool(function) for function in (*read, *write, self.glob, self.grep)]


class TableViews:
    """Views of tables, computed inside the session and cached by the table's content."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._kept: dict[tuple[str, str, View], tuple[int, str]] = {}
        """(hash of the content, file name, view) to (size of the content, text)."""

    async def data_view(self, path: str, view: View = "peek", rows: int = 5) -> str:
        """Look at a table of any size (CSV, Parquet, JSON, Excel): first rows, shape, columns with nulls and examples,
        or exact statistics as of pandas' describe. A sheet of a workbook is FILE#SHEET.

        Args:
            rows: of a peek
        """
        if rows < 1:
            raise BadCall("rows is at least 1")
        ending = path.rpartition("/")[2]
        known = {key[0]: size for key, (size, _) in self._kept.items() if key[1:] == (ending, view)}
        given = {"path": path, "view": view, "rows": rows, "known": known}
        reply = await ask(self._inside, "tables", "view", given, timeout_s=VIEW_S)
        same = reply.get("same")
        if isinstance(same, str) and (same, ending, view) in self._kept:
            return self._kept[same, ending, view][1]
        text = reply.text()
        if view != "peek":
            self._keep(reply, ending, view, text)
        return text

    def _keep(self, reply: Reply, ending: str, view: View, text: str) -> None:
        digest = reply.get("digest")
        if not isinstance(digest, str) or not digest or len(digest) > 128:
            return  # the file changed while it was read
        self._kept[digest, ending, view] = (reply.count("size"), text)
        while len(self._kept) > KEPT or sum(len(one) for _, one in self._kept.values()) > KEPT_CHARACTERS:
            del self._kept[next(iter(self._kept))]


def _as_tool(function: Callable[..., Any]) -> AnyTool:
    name = function.__name__
    writes, is_view = name in WRITES, name == "data_view"
    made = tool(
        effect="once" if writes else "pure",
        reach="workspace" if writes else "files",
        timeout_s=(VIEW_S if is_view else QUICK_S) + SPARE_S,
        parallel_safe=False,
        server="data" if is_view else "filesystem",
    )(function)
    return replace(made, goes=write_reach if writes else None, untold=UNTOLD.get(name, ()), returns=None)


def file_tools(inside: Inside, kept: Kept | None = None) -> list[AnyTool]:
    """Build the tools for files and tables of a session; `kept` serves `read_file("blob:HANDLE")`."""
    return [*FileTools(inside, kept).tools(), _as_tool(TableViews(inside).data_view)]


async def preview(inside: Inside, tool: str, args: Json) -> str:
    """Return a unified diff of what `write_file`, `edit_file` or `apply_patch` would change; write nothing.

    Empty for other tools. Raises BadCall if the call would fail, and ToolFailed for wrong arguments.
    """
    if tool not in WRITES:
        return ""
    given = {**_as_tool(getattr(FileTools(inside), tool)).check_arguments(args), "dry": True}
    is_patch = tool == "apply_patch"
    do = "apply" if is_patch else tool.removesuffix("_file")
    reply = await ask(inside, "patcher" if is_patch else "file_writer", do, given, timeout_s=QUICK_S)
    return reply.text("diff")


async def measure(inside: Inside, paths: Sequence[str]) -> Measured:
    """Count the files at and below paths and patterns in the session; links are not followed."""
    reply = await ask(inside, "file_finder", "measure", {"paths": list(paths)}, timeout_s=QUICK_S)
    return Measured(files=reply.count("files"), bytes=reply.count("bytes"), more=reply.get("more") is True)


def write_reach(args: Mapping[str, Json]) -> tuple[Reach, str]:
    return "workspace", str(args.get("path", ""))


def _page(data: bytes, name: str, first: int, most_lines: int | None) -> str:
    """Return at most `READ` characters of a kept text, in the format of `read_file`. Raises BadCall past its end."""
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    if first > max(1, len(lines)):
        raise BadCall(f"{name} has {len(lines):,} lines; start_line={first} is past the end")
    wanted = lines[first - 1 :][:most_lines]
    sizes = accumulate(map(len, wanted))
    shown = [line for line, size in zip(wanted, sizes, strict=True) if size <= READ]
    last = first + len(shown) - 1
    if not shown and lines:
        return f"{lines[first - 1][:READ]}\n[line {first:,} of {len(lines):,}, cut; go on with start_line={first + 1}]"
    text = "".join(shown)
    if last >= len(lines) and first == 1:
        return text
    more = f"; go on with start_line={last + 1}" if last < len(lines) else ""
    return f"{text.removesuffix(chr(10))}\n[lines {first:,} to {last:,} of {len(lines):,}{more}]"


def _reply_text(reply: Reply) -> str:
    """Return the reply's text. Raises BadCall if the sandbox rolled something back."""
    if reply.notices:
        raise BadCall("; ".join(reply.notices))
    return reply.text()


def _line(entry: Mapping[str, Json]) -> str:
    match entry["type"]:
        case "directory":
            return f"{entry['name']}/"
        case "file":
            return f"{entry['name']}  {entry['size']:,}"
        case other:
            return f"{entry['name']}  ({other})"


class FileTransfer:
    """Reads and writes whole files of the workspace for clients outside the session."""

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
        program = _FILE_ACCESS.read_text("utf-8") + _TRANSFER.format(limit=TRANSFER_BYTES)
        argv = ["python3", "-I", "-S", "-c", program, do, path]
        ran = await self._inside.command(argv, timeout_s=TRANSFER_S, stdin=data)
        if ran.status != "ok":
            said = ran.stderr.decode("utf-8", "replace").strip()
            late = f"it took longer than {TRANSFER_S:g} s and was stopped" if ran.status == "timeout" else ""
            raise BadCall(cap_text(late or said or "the session could not do this", _TRANSFER_WORDS))
        if ran.notices:
            raise BadCall("; ".join(ran.notices))
        return ran.stdout


def _decode_content(content: str | None, encoded: str | None) -> bytes:
    if (content is None) == (encoded is None):
        raise BadCall("give either content, which is text, or base64")
    try:
        data = content.encode() if content is not None else base64.b64decode(encoded or "", validate=True)
    except UnicodeEncodeError as error:
        raise BadCall(f"content holds half a surrogate pair at character {error.start}") from error
    except (binascii.Error, ValueError) as error:
        raise BadCall(f"base64 cannot be decoded: {error}") from error
    if len(data) > TRANSFER_BYTES:
        raise BadCall(f"the file has {len(data):,} bytes; the limit is {TRANSFER_BYTES:,}")
    return data


def transfer_tools(inside: Inside) -> list[AnyTool]:
    """Build the tools `get_file` and `put_file`."""
    transfer = FileTransfer(inside)
    shared: dict[str, Any] = {"timeout_s": TRANSFER_S + 10, "parallel_safe": False, "server": "filesystem"}
    get = tool(effect="pure", reach="files", **shared)(transfer.get_file)
    put = tool(effect="once", reach="workspace", **shared)(transfer.put_file)
    return [get, replace(put, goes=write_reach, returns=None)]
