"""Shows an action before it runs: code beside its cell number, a command, or a tool call in one line."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.text import Text

from pinfold.events import Action, CallTool, Json, NotPlain, RunCell, plain_json
from pinfold.front.chat.renderers.code import highlight_code, language_of
from pinfold.front.chat.renderers.lines import cut, with_gutter
from pinfold.text import presentable, presentable_line

CODE_LINES = 120
"""Lines of a cell that are shown; a longer one is cut in the middle."""
_WRITTEN_LINES = 12
"""Lines of a new file that are shown."""
_ARGUMENTS = 160


def render_action(action: Action, cell: int | None, *, above: bool = False) -> list[RenderableType]:
    """`cell`: its number, if it has one. `above`: the reply above shows its code already."""
    match action:
        case RunCell() if above:
            return [_words("  Ran the code above" if cell is None else f"  Ran as cell {cell}", "dim italic")]
        case RunCell(code=code):
            return _beside_all(_elide_lines(highlight_code(code.strip("\n"), "python"), CODE_LINES), cell)
        case CallTool(tool="shell", given={"command": str(command), **rest}):
            where = " on the host" if rest.get("where") == "host" else ""
            lines = _elide_lines(highlight_code(command.strip("\n"), "bash"), CODE_LINES)
            lines[0] = _words(f"${where} ", "bold").append_text(lines[0])
            return _beside_all(lines, cell)
        case CallTool(tool=tool, given=given):
            return [_beside(_title(tool, given), cell), *_render_new_file(tool, given)]


_LONG = {"edit_file": ("old", "new"), "write_file": ("content",), "apply_patch": ("patch",)}
"""Arguments that are not shown in the title."""


def _title(tool: str, given: Mapping[str, Json]) -> Text:
    hidden = _LONG.get(tool, ())
    rest = {name: value for name, value in given.items() if name not in hidden}
    if set(rest) == {"path"} or tool in ("edit_file", "write_file"):
        arguments = str(rest.get("path", ""))
    else:
        arguments = ", ".join(f"{name}={_value(value)}" for name, value in rest.items())
    text = _words(presentable_line(tool), "bold")
    return text.append(f" {cut(presentable_line(arguments), _ARGUMENTS)}") if arguments else text


def _render_new_file(tool: str, given: Mapping[str, Json]) -> list[RenderableType]:
    """The content of a new file. An edit is shown when it is done, or in its approval."""
    match tool, given:
        case "write_file", {"path": str(path), "content": str(content)}:
            lines = _elide_lines(highlight_code(content.rstrip("\n"), language_of(path)), _WRITTEN_LINES)
            return [with_gutter(line, "    + ", "green") for line in lines]
        case _:
            return []


def _value(value: Json) -> str:
    try:
        return plain_json(value)
    except NotPlain:
        return "?"


def _beside_all(lines: list[Text], cell: int | None) -> list[RenderableType]:
    return [_beside(line, cell if place == 0 else None) for place, line in enumerate(lines)]


def _beside(line: Text, cell: int | None) -> RenderableType:
    number = "" if cell is None else str(cell)
    return with_gutter(line, "    │ ", "dim", f"{number:>3} │ ")


def _elide_lines(lines: list[Text], most: int) -> list[Text]:
    if len(lines) <= most + 1:
        return lines or [_words("", "")]
    first, last = most * 3 // 4, most - most * 3 // 4
    more = _words(f"... {len(lines) - most:,} lines more", "dim italic")
    return [*lines[:first], more, *lines[-last:]]


def _words(text: str, style: str) -> Text:
    made = Text()
    return made.append(presentable(text), style)
