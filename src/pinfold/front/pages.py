"""Formats what is known of a session as plain text that is safe to print, for the chat and the command line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING, TypeAlias

from rich.cells import cell_len, set_cell_size

from pinfold import events
from pinfold.app import OutboundTotal, compacted_in_words, rewound_in_words
from pinfold.app.clients import ModelBill, SessionHistory, TurnRecord
from pinfold.app.storage import SessionNode, SessionTree
from pinfold.events import BlobId, FileChange, Json, Mode, Rewindable
from pinfold.text import abbreviate_home, first_line, join_names, join_numbers, presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.app.diagnostics import SystemMap
    from pinfold.app.session import Note
    from pinfold.app.trust import Skill

WIDTH = 80
_GAP = 2
_NAMED = 6
"""How many files are listed by name."""
_LOST = 12
"""How many variables, tools or models are listed by name."""
_LEAST = 8
"""Smallest width of the last column."""


def columns(rows: Iterable[Sequence[str]], *, width: int = WIDTH, indent: int = 0) -> list[str]:
    """Format a table; each column is as wide as its widest cell, and the last one is cut at the edge."""
    table = [[presentable_line(cell) for cell in row] for row in rows]
    if not table:
        return []
    wide = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    room = width - indent - sum(each + _GAP for each in wide[:-1])
    lines: list[str] = []
    for row in table:
        cells = [cell + " " * (each - cell_len(cell) + _GAP) for cell, each in zip(row[:-1], wide, strict=False)]
        lines.append((" " * indent + "".join(cells) + cut(row[-1], max(room, _LEAST))).rstrip())
    return lines


def cut(text: str, room: int) -> str:
    """Cut a line to `room` columns of a terminal."""
    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1).rstrip()}…"


def cut_start(text: str, room: int) -> str:
    """Cut a text to its last `room` characters: paths and names of models differ at the end."""
    return text if len(text) <= room else f"…{text[1 - room :]}"


def size_in_words(count: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def variables_page(variables: Sequence[Mapping[str, Json]], words: str = "", width: int = WIDTH) -> list[str]:
    """List variables whose name and type match all the words, with type, shape, size and the cell that made each."""
    found = _match(variables, words, "name", "type")
    if not found:
        return [f"No variable matches {presentable_line(words)!r}; /vars shows all." if variables else "No variables."]
    rows = [("name", "type", "shape", "size", "cell")]
    for one in found:
        size = one.get("size")
        name, kind, shape, cell = (_field(one, key) for key in ("name", "type", "shape", "cell"))
        rows.append((name, kind, shape, size_in_words(size) if isinstance(size, int) else "", cell))
    return columns(rows, width=width)


def _match(rows: Iterable[Mapping[str, Json]], words: str, *names: str) -> list[Mapping[str, Json]]:
    """Return the rows in whose named fields all the words occur."""
    wanted = words.lower().split()
    texts = ((row, " ".join(_field(row, name) for name in names).lower()) for row in rows)
    return [row for row, text in texts if all(word in text for word in wanted)]


def _field(row: Mapping[str, Json], name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value)


def tools_page(tools: Sequence[Mapping[str, Json]], words: str, width: int = WIDTH) -> list[str]:
    """List the tools that match all the words."""
    found = _match(tools, words, "name", "server", "words")
    if not found:
        return [f"No tool matches {presentable_line(words)!r}; /tools shows all." if tools else "No tools."]
    rows = [
        (_full_name(one), _field(one, "effect"), first_line(_field(one, "words")))
        for one in sorted(found, key=_full_name)
    ]
    return columns(rows, width=width)


def _full_name(tool: Mapping[str, Json]) -> str:
    name, server = _field(tool, "name"), _field(tool, "server")
    return f"{server}.{name}" if server and not name.startswith(f"{server}.") else name


def skill_rows(skills: Sequence[Skill]) -> Iterator[tuple[Json, str]]:
    """Yield each skill as data and as a line."""
    rows = [(one.name, one.place, one.state, one.problem or one.described.description) for one in skills]
    for (name, place, state, words), line in zip(
        rows, columns(rows, width=shutil.get_terminal_size().columns), strict=True
    ):
        yield {"name": name, "place": place, "state": state, "description": words}, line


def servers_page(servers: Sequence[Mapping[str, Json]], width: int = WIDTH) -> list[str]:
    if not servers:
        return ["No MCP servers. Add one: pinfold mcp add NAME (URL | -- COMMAND)"]
    rows: list[Sequence[str]] = []
    for one in servers:
        tools = one.get("tools")
        offers = "tools not read yet" if tools is None else f"{tools if isinstance(tools, int) else len(tools)} tools"
        rows.append((_field(one, "name"), _field(one, "state"), offers, first_line(_field(one, "problem"))))
    return columns(rows, width=width)


def cost_page(history: SessionHistory, width: int = WIDTH) -> list[str]:
    """Show replies, tokens and cost by model, and the total."""
    if not history.bills:
        return ["No model has been used yet."]
    rows: list[Sequence[str]] = [("model", "replies", "in", "out", "cached", "cost")]
    replies = sum(bill.replies for bill in history.bills)
    total = ModelBill(model="total", replies=replies, usage=history.usage, cost=history.cost)
    for bill in (*history.bills, total) if len(history.bills) > 1 else history.bills:
        usage = bill.usage
        tokens = (f"{count:,}" for count in (usage.input_tokens, usage.output_tokens, usage.cached_tokens))
        # A scripted model uses no tokens, so it costs nothing.
        rows.append((bill.model, str(bill.replies), *tokens, dollars(bill.cost if usage.total else 0.0)))
    return columns(rows, width=width)


def dollars(cost: float | None) -> str:
    return "unknown" if cost is None else f"${cost:.4f}"


def egress_page(totals: Sequence[OutboundTotal], width: int = WIDTH) -> list[str]:
    if not totals:
        return ["Nothing was sent from this machine."]
    rows = [("to", "times", "bytes out", "bytes back", "tokens in/out")]
    for one in totals:
        tokens = f"{one.input_tokens:,}/{one.output_tokens:,}" if one.input_tokens or one.output_tokens else ""
        rows.append((one.to, f"{one.times:,}", f"{one.bytes_out:,}", f"{one.bytes_back:,}", tokens))
    return columns(rows, width=width)


def sessions_page(sessions: Sequence[SessionNode], here: str = "", *, width: int = WIDTH, words: str = "") -> list[str]:
    """List sessions in the given order; `here` is marked."""
    if not sessions:
        return [f"No session matches {presentable_line(words)!r}." if words else "No sessions yet."]
    rows: list[Sequence[str]] = []
    for kin in sessions:
        live = "live" if kin.is_live and kin.id != here else ""
        rows.append((f"{'*' if kin.id == here else ' '} {kin.id}", _minute(kin), live, title_of(kin)))
    return columns(rows, width=width)


def _minute(kin: SessionNode) -> str:
    return kin.last[:16].replace("T", " ")


def title_of(kin: SessionNode) -> str:
    return first_line(presentable(kin.title), 60) or "(untitled)"


def notes_page(notes: Sequence[Note], *, width: int = WIDTH) -> list[str]:
    """Show each note on a line: number, day, where it is recalled, a remark on its state, and its text."""
    return columns(((str(note.id), note.at[:10], note.scope, _remark(note), note.text) for note in notes), width=width)


def _remark(note: Note) -> str:
    return f"replaced by {note.superseded_by}" if note.superseded_by else "" if note.trusted else "untrusted"


def note_fields(note: Note) -> list[tuple[str, str]]:
    """Return what is known of a note, without its text."""
    fields = {
        "written": f"{note.at[:16].replace('T', ' ')} UTC",
        "by": f"session {note.session}" + (f", cell {note.cell}" if note.cell else "") if note.session else "",
        "recalled": "in every folder" if note.scope == "global" else f"in {abbreviate_home(note.workspace)}",
        "tags": ", ".join(note.tags),
        "trust": "" if note.trusted else "untrusted: its session had read outside text",
        "replaced": f"by note {note.superseded_by}" if note.superseded_by else "",
    }
    return [(name, value) for name, value in fields.items() if value]


def branches_page(history: SessionHistory, family: SessionTree, width: int = WIDTH) -> list[str]:
    """Show a session with its ancestors and its forks."""
    above = enumerate(reversed(family.ancestors))
    rows = [(f"{'  ' * depth}{kin.id}", _minute(kin), title_of(kin)) for depth, kin in above]
    depth = len(family.ancestors)
    title = first_line(presentable(history.state.title), 60)
    rows.append((f"{'  ' * depth}{history.session} *", "", title or "(this session)"))
    for below, kin in family.children:
        rows.append((f"{'  ' * (depth + below)}{kin.id}", _minute(kin), title_of(kin)))
    return columns(rows, width=width)


def rewind_page(history: SessionHistory, turn: TurnRecord, what: Rewindable) -> list[str]:
    """Describe what a rewind would undo, and what stays."""
    turns = [one for one in history.turns if one.number >= turn.number and not one.forgotten]
    cells = tuple(cell for cell in history.path if cell > turn.before)
    files = history.files_of(cells)
    lines = [f"Back to before turn {turn.number}: {first_line(presentable(turn.text), 50)}"]
    if what in ("all", "chat"):
        lines.append(f"  forgotten: {join_numbers('turn', [one.number for one in turns])}")
    if what != "chat" and cells:
        goes = {"all": "variables and files", "files": "files", "variables": "variables"}[what]
        lines.append(f"  undone: {join_numbers('cell', cells)} ({goes})")
    if what in ("all", "files") and files:
        lines.append(f"  files: {presentable_line(join_names(files, _NAMED))}")
    if what == "chat" and cells:
        lines.append(f"  stays: what {join_numbers('cell', cells)} did to variables and files")
    stays = [first_line(presentable(effect), 100) for effect in history.state.effects_of(cells)]
    return [*lines, *(f"  cannot be undone: {effect}" for effect in stays)]


Contents: TypeAlias = Mapping[BlobId, bytes]
_SHOWN = 400
"""Most lines shown of one file's diff."""
_LISTED = 100


def changes_page(changes: Sequence[FileChange], others: int = 0, width: int = WIDTH) -> list[str]:
    rows = [(change.how, change.path) for change in changes[:_LISTED]]
    lines = columns(rows, width=width, indent=2)
    more = max(0, len(changes) - _LISTED) + others
    return [*lines, f"  and {more:,} more"] if more else lines


def diff_page(changes: Sequence[FileChange], contents: Contents, most: int = _SHOWN, whole: str = "") -> Iterator[str]:
    """Yield, for each file, a heading with counts of added and removed lines, then at most `most` lines of its diff.

    `whole` tells the user how to see the rest.
    """
    for change in changes:
        lines = _diff(change, contents)
        if lines is None:
            yield presentable_line(f"{change.path} ({change.how})")
            yield f"  not shown: {_why(change, contents)}"
            continue
        added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        yield presentable_line(f"{change.path} ({change.how}, +{added:,} -{removed:,})")
        yield from lines[:most]
        if len(lines) > most:
            yield f"  and {len(lines) - most:,} lines more{whole and f'; {whole}'}"


def _diff(change: FileChange, contents: Contents) -> list[str] | None:
    old = _text(change.before, contents) if change.how != "added" else ""
    new = _text(change.after, contents) if change.how != "removed" else ""
    if old is None or new is None:
        return None
    # Without the two lines with the file's name, which the heading has.
    return list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3))[2:]


def _text(blob: BlobId | None, contents: Contents) -> str | None:
    """Return a blob's text; None if it is not text or not kept. Redacted whole, so that no secret is cut in two."""
    data = contents.get(blob) if blob is not None else None
    if data is None or b"\0" in data:
        return None
    try:
        return presentable(data.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def _why(change: FileChange, contents: Contents) -> str:
    kept = [contents.get(blob) for blob in (change.before, change.after) if blob is not None]
    sizes = [len(data) for data in kept if data is not None]
    if not sizes:
        return "too large to keep"
    return f"not text ({' -> '.join(map(size_in_words, sizes))})"


_ANNOTATIONS = {
    "readOnlyHint": "only reads",
    "destructiveHint": "may destroy data",
    "idempotentHint": "safe to repeat",
    "openWorldHint": "contacts other services",
}


def annotations_page(server: str, annotations: Mapping[str, Mapping[str, Json]]) -> str:
    """Show what a server says about its tools; trusting the server means believing it."""
    lines = [f"{server} says about its tools:"]
    for tool, said in annotations.items():
        words = [words for key, words in _ANNOTATIONS.items() if said.get(key) is True]
        lines.append(f"  {tool}: {', '.join(words) or 'nothing, so you are asked about each call'}")
    return "\n".join(lines)


def map_page(found: SystemMap, width: int = 0) -> Iterator[str]:
    """Yield a map as text: each node with its details and the nodes it leads to."""
    titles = {node.id: presentable_line(node.title) for node in found.nodes}
    width = width or shutil.get_terminal_size().columns
    for node in found.nodes:
        yield cut(f"{titles[node.id]}{' (fault)' if node.faulty else ''}", width)
        yield from (cut(f"    {presentable_line(line)}", width) for line in node.lines)
        for edge in found.edges:
            if edge.source == node.id:
                words = f"{presentable_line(edge.words)} " if edge.words else ""
                yield cut(f"  -> {words}{titles[edge.target]}", width)


SERVER_KINDS = {
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "openai": "OpenAI-compatible server",
}
MODES: Sequence[tuple[Mode, str]] = (
    ("read-only", "changes nothing; asks before using a host you allowed"),
    ("ask", "code may change files (undo reverts); asks before other changes, sending, installing"),
    ("auto", "changes files (undo reverts), uses allowed hosts; asks about the rest"),
    ("full", "asks only about protected files, new hosts and commands outside the sandbox"),
)
CUT_OFF = {"length": "cut off: the model reached its output limit", "filter": "cut off by the model's provider"}
_OF_SERVER = re.compile(r"(\S+) of server [0-9a-f]+")
_ALLOWS = {
    "shell": "the command `{}`",
    "network": "connections to {}",
    "install": "installing {}",
    "tool": "calls of {}",
    "flow": "sending to {}",
}


def describe_event(event: events.Event, *, repeats: bool = False) -> str:
    """Describe an event that is not part of the conversation itself; empty if there is nothing to say.

    `repeats`: a model failed for the same reason as before.
    """
    match event:
        case events.SessionOpened(lost=lost) if lost:
            return f"session reopened; lost: {join_names(lost, _LOST)}"
        case events.SessionRewound():
            return rewound_in_words(event)
        case events.SessionForked(source=source):
            return f"forked from {source}; the above was copied from there"
        case events.ContextCompacted(cause="window" | "asked"):
            return compacted_in_words(event)
        case events.ContextCompacted(summary=summary):
            known = f"The model still knows these variables: {summary}" if summary else "Variables and files stay."
            return f"Context cleared. {known}"
        case events.Noticed(text=text):
            return text
        case events.ModelFailed(model=model, error=error, retry_in_s=float() | int() as wait_s):
            return f"{model} failed {'again' if repeats else f'({error})'}; trying again in {round(wait_s, 1):g} s"
        case events.ModelFailed(model=model, error=error, instead=instead) if instead:
            return f"{model} failed ({error}); asking {instead} instead"
        case events.TurnEnded(text=text, without=without) if without and "(Done without " not in text:
            return f"unavailable during this turn: {join_names(without, _LOST)}"
        case events.TurnInterrupted(reason=reason):
            return f"{reason}; variables and files are as the last cell left them"
        case events.TurnFailed(error=error, temporary=temporary):
            return f"failed: {error}{' (try again later)' if temporary else ''}"
        case _:
            return ""


def describe_pattern(pattern: str) -> str:
    """Describe what a granted pattern allows."""
    kind, _, what = pattern.partition(": ")
    if of_server := _OF_SERVER.fullmatch(what):  # the digits identify the program, which the user knows by name
        what = f"{of_server[1]} (while the server {of_server[1].partition('.')[0]} is the same program)"
    if kind == "edit":
        folder = what.removesuffix("/*")
        return "edits in this folder" if folder == "." else f"edits in {folder}/"
    if kind == "shell" and what.endswith(" *"):
        return f"commands that begin with `{what.removesuffix(' *')}`"
    return _ALLOWS[kind].format(what) if kind in _ALLOWS else pattern
