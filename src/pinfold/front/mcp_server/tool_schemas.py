"""What a client is told of the tools: names, arguments, results, and what each may do. One source for schema and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

_SESSION = "Which session: an id or a name. Yours unless given."
Named = Annotated[str | None, Meta(description=_SESSION)]


class _Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class RunPython(_Arguments, frozen=True, kw_only=True):
    code: Annotated[str, Meta(description="Python. The value of the last expression is shown.")]
    session: Named = None
    timeout_s: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)] | None, Meta(description="Stop it after so many seconds.")
    ] = None


class OfSession(_Arguments, frozen=True, kw_only=True):
    session: Named = None


class UndoArguments(_Arguments, frozen=True, kw_only=True):
    session: Named = None
    to: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="The state after this cell, 0 being the start; before the last unless given."),
    ] = None
    what: Literal["all", "variables", "files"] = "all"


class GetFile(_Arguments, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="Relative to the workspace; or `blob:HANDLE` of an output that was cut.")]
    session: Named = None


class PutFile(_Arguments, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="Relative to the workspace; missing folders are made.")]
    content: Annotated[str | None, Meta(description="The file's text; or give base64.")] = None
    base64: Annotated[str | None, Meta(description="The file's bytes, in base64.")] = None
    session: Named = None


class OpenSession(_Arguments, frozen=True, kw_only=True):
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=80)] | None,
        Meta(description="Goes on with the session of this name if there was one."),
    ] = None


class CloseSession(_Arguments, frozen=True, kw_only=True):
    session: Annotated[str, Meta(description="An id or a name.")]


class Nothing(_Arguments, frozen=True, kw_only=True):
    pass


class Ask(_Arguments, frozen=True, kw_only=True):
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
    """Its number, for undo."""
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
    """What has happened and cannot be undone."""
    notices: tuple[str, ...]


class VariableResult(Struct, frozen=True, kw_only=True):
    name: str
    type: str
    shape: str | None = None
    size: int | None = None
    cell: int | None = None


class VariablesResult(Struct, frozen=True, kw_only=True):
    session: str
    variables: tuple[VariableResult, ...]


class FileResult(Struct, frozen=True, kw_only=True):
    session: str
    path: str
    size: int
    text: str | None
    """Its content where that is UTF-8."""
    base64: str | None
    """Its content where that is not."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    name: str
    title: str
    description: str
    takes: type[Struct]
    gives: type[Struct]
    reads_only: bool = False
    destroys: bool = False
    repeatable: bool = False
    reaches_out: bool = False

    def wire(self) -> dict[str, Any]:
        """As `tools/list` tells it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": _schema(self.takes),
            "outputSchema": _schema(self.gives),
            "annotations": {
                "readOnlyHint": self.reads_only,
                "destructiveHint": self.destroys,
                "idempotentHint": self.repeatable or self.reads_only,
                "openWorldHint": self.reaches_out,
            },
        }


def _schema(type_: type[Struct]) -> dict[str, Any]:
    (reference,), components = msgspec.json.schema_components((type_,), ref_template="#/$defs/{name}")
    whole = components.pop(str(reference["$ref"]).rpartition("/")[2])
    for part in (whole, *components.values()):
        part.pop("title", None)
    return {**whole, "$defs": components} if components else whole


SANDBOX = (
    ToolDeclaration(
        name="run_python",
        title="Run Python",
        description=(
            "Run Python in a persistent, isolated session: variables, imports and files of the workspace stay for later "
            "calls, and `undo` takes a call back. Returns output, the value of the last expression and pictures."
        ),
        takes=RunPython,
        gives=CellResult,
        destroys=True,
        reaches_out=True,  # to hosts the user has listed, or agrees to
    ),
    ToolDeclaration(
        name="fork",
        title="Fork a session",
        description="A second session that goes on from where this one is: with its variables, in the same workspace.",
        takes=OfSession,
        gives=SessionResult,
    ),
    ToolDeclaration(
        name="undo",
        title="Undo",
        description="Take back the last call of run_python or put_file: variables and files of the workspace.",
        takes=UndoArguments,
        gives=RewoundResult,
        destroys=True,
    ),
    ToolDeclaration(
        name="redo",
        title="Redo",
        description="Take the last undo back, if nothing has run since.",
        takes=OfSession,
        gives=RewoundResult,
        destroys=True,
    ),
    ToolDeclaration(
        name="variables",
        title="Variables",
        description="The variables of a session: names, types, shapes and sizes.",
        takes=OfSession,
        gives=VariablesResult,
        reads_only=True,
    ),
    ToolDeclaration(
        name="get_file",
        title="Get a file",
        description="Read a whole file of the workspace, up to 8 MB.",
        takes=GetFile,
        gives=FileResult,
        reads_only=True,
    ),
    ToolDeclaration(
        name="put_file",
        title="Put a file",
        description="Write a whole file of the workspace, up to 8 MB.",
        takes=PutFile,
        gives=PutResult,
        destroys=True,
        repeatable=True,
    ),
    ToolDeclaration(
        name="sessions",
        title="List sessions",
        description="The sessions that are open here.",
        takes=Nothing,
        gives=SessionsResult,
        reads_only=True,
    ),
    ToolDeclaration(
        name="open_session",
        title="Open a session",
        description="A session beside your own. One with a name can be gone on with later.",
        takes=OpenSession,
        gives=SessionResult,
    ),
    ToolDeclaration(
        name="close_session",
        title="Close a session",
        description="End a session's processes. One with a name is kept, and can be opened again.",
        takes=CloseSession,
        gives=SessionResult,
        destroys=True,
        repeatable=True,
    ),
)
AGENT = ToolDeclaration(
    name="ask",
    title="Ask the agent",
    description="Have an agent with a model of its own do a task in the session, by writing and running Python.",
    takes=Ask,
    gives=AskResult,
    destroys=True,
    reaches_out=True,
)
