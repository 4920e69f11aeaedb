"""What is known of a session, as lines of plain text: for the chat and for the command line alike.

Whatever came from a program, a model or a file is made fit to print here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from pinfold.app import OutboundTotal
from pinfold.app.clients.session_history import ModelBill, SessionHistory, TurnRecord
from pinfold.app.storage.session_store import SessionNode, SessionTree
from pinfold.events import Json, Rewindable
from pinfold.text import first_line, join_names, join_numbers, presentable, presentable_line

WIDTH = 80
_GAP = 2
_NAMED = 6
"""Files that are told by name."""
_LEAST = 8
"""Of a last column that has no room."""


def columns(rows: Iterable[Sequence[str]], *, width: int = WIDTH, indent: int = 0) -> list[str]:
    """Side by side, each as wide as its widest; the last one is cut at the edge."""
    table = [[presentable_line(cell) for cell in row] for row in rows]
    if not table:
        return []
    wide = [max(map(cells_of, column)) for column in zip(*table, strict=True)]
    room = width - indent - sum(each + _GAP for each in wide[:-1])
    lines: list[str] = []
    for row in table:
        cells = [cell + " " * (each - cells_of(cell) + _GAP) for cell, each in zip(row[:-1], wide, strict=False)]
        lines.append((" " * indent + "".join(cells) + cut(row[-1], max(room, _LEAST))).rstrip())
    return lines


def cut(text: str, room: int) -> str:
    """As much of a line as fits, in cells of a terminal."""
    if cells_of(text) <= room:
        return text
    kept, used = "", 1
    for char in text:
        used += cells_of(char)
        if used > room:
            break
        kept += char
    return f"{kept.rstrip()}…"


def cells_of(text: str) -> int:
    """Columns a terminal needs for it."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def size_in_words(count: int | None) -> str:
    if count is None:
        return ""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def variables_page(variables: Sequence[Mapping[str, Json]], width: int = WIDTH) -> list[str]:
    """Each with type, shape, size and the cell that made it."""
    if not variables:
        return ["No variables."]
    rows = [("name", "type", "shape", "size", "cell")]
    for one in variables:
        shape, size, cell = one.get("shape"), one.get("size"), one.get("cell")
        rows.append(
            (
                str(one.get("name", "")),
                str(one.get("type", "")),
                "" if shape is None else str(shape),
                size_in_words(size if isinstance(size, int) else None),
                "" if cell is None else str(cell),
            )
        )
    return columns(rows, width=width)


def tools_page(tools: Sequence[Mapping[str, Json]], words: str, width: int = WIDTH) -> list[str]:
    """Those that all the words fit."""
    wanted = words.lower().split()
    found = [
        one
        for one in tools
        if all(word in f"{one.get('name')} {one.get('server')} {one.get('words')}".lower() for word in wanted)
    ]
    if not found:
        return [f"No tool fits {presentable_line(words)!r}; /tools shows all." if wanted else "No tools."]
    rows = [
        (_full_name(one), str(one.get("effect", "")), first_line(str(one.get("words") or "")))
        for one in sorted(found, key=_full_name)
    ]
    return columns(rows, width=width)


def _full_name(tool: Mapping[str, Json]) -> str:
    name, server = str(tool.get("name", "")), str(tool.get("server") or "")
    return f"{server}.{name}" if server and not name.startswith(f"{server}.") else name


def servers_page(servers: Sequence[Mapping[str, Json]], width: int = WIDTH) -> list[str]:
    if not servers:
        return ["No MCP servers. Add one: pinfold mcp add NAME (URL | -- COMMAND)"]
    rows = [
        (
            str(one.get("name", "")),
            str(one.get("state", "")),
            _tools_in_words(one.get("tools")),
            first_line(str(one.get("problem") or "")),
        )
        for one in servers
    ]
    return columns(rows, width=width)


def _tools_in_words(tools: Json) -> str:
    match tools:
        case int():
            return f"{tools} tools"
        case list():
            return f"{len(tools)} tools"  # pyright: ignore[reportUnknownArgumentType] - plain JSON
        case _:
            return "never seen"


def cost_page(story: SessionHistory, width: int = WIDTH) -> list[str]:
    """By model, with the whole of it last."""
    if not story.bills:
        return ["No model was asked yet."]
    rows = [("model", "replies", "in", "out", "cached", "cost")]
    rows += [_bill(bill) for bill in story.bills]
    if len(story.bills) > 1:
        replies = sum(bill.replies for bill in story.bills)
        rows.append(_bill(ModelBill(model="total", replies=replies, usage=story.usage, cost=story.cost)))
    return columns(rows, width=width)


def _bill(bill: ModelBill) -> tuple[str, str, str, str, str, str]:
    usage = bill.usage
    return (
        bill.model,
        str(bill.replies),
        f"{usage.input_tokens:,}",
        f"{usage.output_tokens:,}",
        f"{usage.cached_tokens:,}",
        dollars(bill.cost if usage.total else 0.0),  # a scripted model uses nothing
    )


def dollars(cost: float | None) -> str:
    return "unknown" if cost is None else f"${cost:.4f}"


def egress_page(gone: Sequence[OutboundTotal], width: int = WIDTH) -> list[str]:
    if not gone:
        return ["Nothing left this machine."]
    rows = [("to", "times", "bytes out", "bytes back", "tokens in/out")]
    rows += [
        (
            one.to,
            f"{one.times:,}",
            f"{one.bytes_out:,}",
            f"{one.bytes_back:,}",
            f"{one.input_tokens:,}/{one.output_tokens:,}" if one.input_tokens or one.output_tokens else "",
        )
        for one in gone
    ]
    return columns(rows, width=width)


def sessions_page(sessions: Sequence[SessionNode], here: str = "", *, width: int = WIDTH, words: str = "") -> list[str]:
    """The last used first; `here` is marked."""
    if not sessions:
        return [f"No session fits {presentable_line(words)!r}." if words else "No sessions yet."]
    return columns([_session(kin, here) for kin in sessions], width=width)


def _session(kin: SessionNode, here: str) -> tuple[str, str, str, str]:
    mark = "*" if kin.id == here else " "
    live = "live" if kin.is_live and kin.id != here else ""
    return (f"{mark} {kin.id}", _minute(kin), live, title_of(kin))


def _minute(kin: SessionNode) -> str:
    return kin.last[:16].replace("T", " ")


def title_of(kin: SessionNode) -> str:
    return first_line(presentable(kin.title), 60) or "(untitled)"


def branches_page(story: SessionHistory, family: SessionTree, width: int = WIDTH) -> list[str]:
    """Where a session came from, itself, and what was forked from it."""
    rows: list[tuple[str, str, str]] = []
    depth = 0
    for kin in reversed(family.ancestors):
        rows.append((f"{'  ' * depth}{kin.id}", _minute(kin), title_of(kin)))
        depth += 1
    title = first_line(presentable(story.title), 60)
    rows.append((f"{'  ' * depth}{story.session} *", "", title or "(this session)"))
    for below, kin in family.children:
        rows.append((f"{'  ' * (depth + below)}{kin.id}", _minute(kin), title_of(kin)))
    return columns(rows, width=width)


def rewind_page(story: SessionHistory, turn: TurnRecord, what: Rewindable) -> list[str]:
    """What would go and what would stay, fit to print."""
    turns = [one for one in story.turns if one.number >= turn.number and not one.forgotten]
    cells = tuple(cell for cell in story.path if cell > turn.before)
    files = story.files_of(cells)
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
    stays = [first_line(presentable(effect), 100) for effect in story.lasting_effects(cells)]
    return [*lines, *(f"  stays, it cannot be undone: {effect}" for effect in stays)]
