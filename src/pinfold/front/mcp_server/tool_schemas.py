"""The tools that clients can call: arguments, results and hints. Schemas and checks come from the same types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from pinfold.app import Variable
from pinfold.events import Json

_SESSION = "Which session: an id or a name. Default: your own."
Named = Annotated[str | None, Meta(description=_SESSION)]


class _Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool; the docstring of each is the tool's description."""


class RunPython(_Arguments, frozen=True, kw_only=True):
    """Run Python in a persistent, isolated session: variables, imports and files of the workspace stay for later calls,
    and `undo` reverts a call. Returns output, the value of the last expression and pictures."""

    code: Annotated[str, Meta(description="Python. The value of the last expression is shown.")]
    session: Named = None
    timeout_s: Annotated[Annotated[float, Meta(gt=0, le=86_400)] | None, Meta(description="Time limit in seconds.")] = (
        None
    )


class Fork(_Arguments, frozen=True, kw_only=True):
    """Start a second session that continues from where this one is: with its variables, in the same workspace."""

    session: Named = None


class UndoArguments(_Arguments, frozen=True, kw_only=True):
    """Undo the last call of run_python or put_file: its changes to variables and to files of the workspace."""

    session: Named = None
    to: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Go back to the state after this cell; 0 is the start. Default: undo only the last cell."),
    ] = None
    what: Literal["all", "variables", "files"] = "all"


class RedoArguments(_Arguments, frozen=True, kw_only=True):
    """Reverse the last undo, if nothing has run since."""

    session: Named = None


class Variables(_Arguments, frozen=True, kw_only=True):
    """List the variables of a session: names, types, shapes and sizes."""

    session: Named = None


class GetFile(_Arguments, frozen=True, kw_only=True):
    """Read a whole file of the workspace, up to 8 MB."""

    path: Annotated[str, Meta(description="Relative to the workspace; or `blob:HANDLE` of an output that was cut.")]
    session: Named = None


class PutFile(_Arguments, frozen=True, kw_only=True):
    """Write a whole file of the workspace, up to 8 MB."""

    path: Annotated[str, Meta(description="Relative to the workspace; missing folders are made.")]
    content: Annotated[str | None, Meta(description="The file's text, unless you give base64.")] = None
    base64: Annotated[str | None, Meta(description="The file's bytes, in base64.")] = None
    session: Named = None


class ListSessions(_Arguments, frozen=True, kw_only=True):
    """List the sessions that are open here."""


class OpenSession(_Arguments, frozen=True, kw_only=True):
    """Open a session beside your own. One with a name can be continued later."""

    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=80)] | None,
        Meta(description="If there is a session of this name, it continues."),
    ] = None


class CloseSession(_Arguments, frozen=True, kw_only=True):
    """End a session's processes. One with a name is kept, and can be opened again."""

    session: Annotated[str, Meta(description="An id or a name.")]


class Ask(_Arguments, frozen=True, kw_only=True):
    """Have an agent with a model of its own do a task in the session, by writing and running Python."""

    prompt: Annotated[str, Meta(description="The task, in words.", min_length=1)]
    session: Named = None


class VariableNames(Struct, frozen=True, kw_only=True):
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class CellResult(Struct, frozen=True, kw_only=True):
    session: str
    status: str
    """ok, error, interrupted, timeout, killed, denied or not_run."""
    cell: int | None
    """The cell's number, for undo."""
    stdout: str
    stderr: str
    value: str | None
    error: str | None
    variables: VariableNames
    displays: tuple[tuple[str, ...], ...]
    rolled_back: bool
    duration_s: float
    notices: tuple[str, ...] = ()


class RewoundResult(Struct, frozen=True, kw_only=True):
    session: str
    to: int
    what: str
    undone: tuple[int, ...]
    redone: tuple[int, ...]
    effects: tuple[str, ...]
    """Effects that cannot be undone."""
    notices: tuple[str, ...]


class VariablesResult(Struct, frozen=True, kw_only=True):
    session: str
    variables: tuple[Variable, ...]


class FileResult(Struct, frozen=True, kw_only=True):
    session: str
    path: str
    size: int
    text: str | None
    """The content if it is UTF-8."""
    base64: str | None
    """The content if it is not UTF-8."""


class PutResult(Struct, frozen=True, kw_only=True):
    session: str
    written: str


class SessionResult(Struct, frozen=True, kw_only=True):
    session: str
    title: str
    workspace: str
    busy: bool = False


class SessionsResult(Struct, frozen=True, kw_only=True):
    sessions: tuple[SessionResult, ...]


class AskResult(Struct, frozen=True, kw_only=True):
    session: str
    text: str
    input_tokens: int
    output_tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    name: str
    title: str
    arguments: type[Struct]
    result: type[Struct]
    reads_only: bool = False
    destroys: bool = False
    repeatable: bool = False
    reaches_out: bool = False

    def wire(self) -> dict[str, Json]:
        """Return the tool's entry in `tools/list`."""
        return {
            "name": self.name,
            "title": self.title,
            "description": " ".join((self.arguments.__doc__ or "").split()),
            "inputSchema": _schema(self.arguments),
            "outputSchema": _schema(self.result),
            "annotations": {
                "readOnlyHint": self.reads_only,
                "destructiveHint": self.destroys,
                "idempotentHint": self.repeatable or self.reads_only,
                "openWorldHint": self.reaches_out,
            },
        }


def _schema(type_: type[Struct]) -> dict[str, Json]:
    (reference,), components = msgspec.json.schema_components((type_,), ref_template="#/$defs/{name}")
    whole = components.pop(str(reference["$ref"]).rpartition("/")[2])
    for part in (whole, *components.values()):
        part.pop("title", None)
        part.pop("description", None)
    return {**whole, "$defs": components} if components else whole


SANDBOX = (
    # run_python reaches hosts that the user has listed, or agrees to.
    ToolDeclaration("run_python", "Run Python", RunPython, CellResult, destroys=True, reaches_out=True),
    ToolDeclaration("fork", "Fork a session", Fork, SessionResult),
    ToolDeclaration("undo", "Undo", UndoArguments, RewoundResult, destroys=True),
    ToolDeclaration("redo", "Redo", RedoArguments, RewoundResult, destroys=True),
    ToolDeclaration("variables", "Variables", Variables, VariablesResult, reads_only=True),
    ToolDeclaration("get_file", "Get a file", GetFile, FileResult, reads_only=True),
    ToolDeclaration("put_file", "Put a file", PutFile, PutResult, destroys=True, repeatable=True),
    ToolDeclaration("sessions", "List sessions", ListSessions, SessionsResult, reads_only=True),
    ToolDeclaration("open_session", "Open a session", OpenSession, SessionResult),
    ToolDeclaration("close_session", "Close a session", CloseSession, SessionResult, destroys=True, repeatable=True),
)
AGENT = ToolDeclaration("ask", "Ask the agent", Ask, AskResult, destroys=True, reaches_out=True)
