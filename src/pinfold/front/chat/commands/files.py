"""/files and /diff: what the session did to the files of its workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread
from rich.text import Text

from pinfold.app import list_folder
from pinfold.events import FileChange
from pinfold.front.chat.commands.output import (
    BadArguments,
    load_story,
    parse_number,
    write_lines,
    write_note,
    write_section,
)
from pinfold.front.file_pages import Contents, changes_page, diff_page
from pinfold.text import presentable_line

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


async def files_command(talk: ChatContext, _: str) -> None:
    story = await load_story(talk)
    changes = story.changes()
    if changes:
        write_section(talk, "Changed by this session", changes_page(changes, story.more_files, talk.paper.width))
        write_note(talk, "how: /diff; take it back: /undo")
    else:
        write_note(talk, "this session has changed no files")
    lines = await anyio.to_thread.run_sync(list_folder, talk.workspace)
    write_section(talk, presentable_line(str(talk.workspace)), lines)


_FEW, _ALL = 20, 10_000
"""Lines of one file's diff."""


async def diff_command(talk: ChatContext, rest: str) -> None:
    story = await load_story(talk)
    most, whole = (_ALL, "") if rest == "all" else (_FEW, "/diff all shows them")
    if rest and rest != "all":
        number = parse_number(rest, "cell")
        if story.cell(number) is None:
            raise BadArguments(f"there is no cell {number}; {story.last_cell}")
        changes = story.changes_of(number)
        nothing = f"cell {number} changed no files"
    else:
        changes, nothing = story.changes(), "this session has changed no files"
    if not changes:
        write_lines(talk, [nothing])
        return
    page = Text()
    for line in diff_page(changes, await contents(talk, changes), most, whole):
        is_heading = not line.startswith((" ", "+", "-", "@"))
        page.append(f"{line}\n", style="bold" if is_heading else _STYLES.get(line[:1], ""))
    page.rstrip()
    talk.paper.write(page)


async def contents(talk: ChatContext, changes: tuple[FileChange, ...]) -> Contents:
    """Of each, before and after, as far as they are kept."""
    wanted = {blob for change in changes for blob in (change.before, change.after) if blob is not None}
    return {blob: await talk.link.blob(blob) for blob in sorted(wanted)}
