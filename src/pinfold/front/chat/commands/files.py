"""/files, /diff, /copy, /open and /init: files of the workspace and of the session."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import anyio.to_thread
from rich.text import Text

from pinfold.app import SessionStore, list_folder
from pinfold.app.storage.exports import Form, Target, display_file, displays_in
from pinfold.events import TurnEnded
from pinfold.front.chat.commands.context import BadArguments, ChatContext, parse_number
from pinfold.front.displays import open_file
from pinfold.front.pages import changes_page, diff_page
from pinfold.text import presentable_line

_STYLES = {"+": "green", "-": "red", "@": "cyan", " ": ""}
"""Styles of the lines of a diff, by their first character; other lines are headings."""


async def files_command(chat: ChatContext, _: str) -> None:
    history = await chat.load_history()
    changes = history.changes()
    if changes:
        chat.write_section("Changed by this session", changes_page(changes, history.more_files, chat.transcript.width))
        chat.write_note("details: /diff; revert: /undo")
    else:
        chat.write_note("this session has changed no files")
    lines = await anyio.to_thread.run_sync(list_folder, chat.workspace)
    chat.write_section(presentable_line(str(chat.workspace)), lines)


_FEW, _ALL = 20, 10_000
"""Most lines shown of one file's diff."""


async def diff_command(chat: ChatContext, rest: str) -> None:
    history = await chat.load_history()
    most, whole = (_ALL, "") if rest == "all" else (_FEW, "/diff all shows them")
    if rest and rest != "all":
        number = parse_number(rest, "cell")
        if history.cell(number) is None:
            raise BadArguments(f"no cell {number}; {history.last_cell}")
        changes = history.changes_of(number)
        nothing = f"cell {number} changed no files"
    else:
        changes, nothing = history.changes(), "this session has changed no files"
    if not changes:
        chat.write_lines([nothing])
        return
    stored = {blob for change in changes for blob in (change.before, change.after) if blob is not None}
    contents = {blob: await chat.link.blob(blob) for blob in sorted(stored)}
    page = Text()
    for line in diff_page(changes, contents, most, whole):
        page.append(f"{line}\n", style=_STYLES.get(line[:1], "bold"))
    page.rstrip()
    chat.transcript.write(page)


_CLIPBOARD = 70_000
"""Most bytes that terminals accept for their clipboard."""
_PASSIVE = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".pdf", ".txt", ".md", ".log", ".json"}
"""Files that programs display and never run."""
_PAGE = 20 << 20
_PAGES = {".html": "text/html", ".htm": "text/html", ".svg": "image/svg+xml"}
"""Files that may run scripts in a browser."""


async def copy_command(chat: ChatContext, rest: str) -> None:
    events = [entry.event for entry in reversed(await chat.load_entries())]
    forgotten = {turn.id for turn in (await chat.load_history()).turns if turn.forgotten}
    ends = (event for event in events if isinstance(event, TurnEnded) and event.turn not in forgotten)
    answer = next((event.text for event in ends if event.text.strip()), "")
    if not answer:
        raise BadArguments("there is no answer yet")
    data = answer.encode("utf-8", "replace")
    if rest:
        await chat.write_file(rest, data)
        chat.write_note(f"wrote the last answer to {rest}")
    elif not chat.transcript.steered:
        raise BadArguments("this terminal has no clipboard; /copy FILE writes the last answer to a file")
    elif len(data) > _CLIPBOARD:
        raise BadArguments(f"the last answer is too long for a clipboard ({len(data):,} bytes); use /copy FILE")
    else:
        chat.transcript.raw(f"\x1b]52;c;{b64encode(data).decode()}\x07", 0)
        chat.write_note(
            f"sent the last answer ({len(answer):,} characters) to your terminal's clipboard (OSC 52); "
            "if it did not arrive: /copy FILE"
        )


async def open_command(chat: ChatContext, rest: str) -> None:
    if rest and not rest.isdecimal():
        path = await anyio.to_thread.run_sync(_file, chat, rest)
    else:
        path = await _display(chat, int(rest or 0))
    await anyio.to_thread.run_sync(open_file, path)
    chat.write_note(f"opened {path}")


async def _display(chat: ChatContext, number: int) -> Path:
    """Return a file that shows display `number` (0: the last) and cannot run anything. Raises BadArguments."""
    entries = await chat.load_entries()
    shown = displays_in(entries)
    number = number or len(shown)
    if not 1 <= number <= len(shown):
        has = f"there are {len(shown)} figures and tables" if shown else "nothing was shown yet"
        raise BadArguments(f"{has}; /open FILE opens a file of this folder")
    blobs = {id_: await chat.link.blob(id_) for id_ in shown[number - 1].mime.values()}
    return display_file(_place(chat), entries, blobs.__getitem__, number, safe=True)


def _place(chat: ChatContext) -> Path:
    folder = SessionStore().folder_of(chat.session)
    if not folder.is_dir():
        raise BadArguments("an --ephemeral session has no files to open")
    return folder


def _file(chat: ChatContext, name: str) -> Path:
    """Return the file itself if it is passive; for HTML and SVG, a page without scripts. Raises BadArguments."""
    path = (chat.workspace / name).resolve()
    if not path.is_file():
        raise BadArguments(f"there is no file {name}")
    kind = path.suffix.lower()
    if kind in _PASSIVE:
        return path
    if kind not in _PAGES:
        raise BadArguments(f"{kind or 'such'} files may run something when opened; open it yourself: {path}")
    from pinfold.app import private_dir
    from pinfold.app.storage.exports.html import display_page
    from pinfold.app.storage.exports.transcript import ShownDisplay

    if path.stat().st_size > _PAGE:
        raise BadArguments(f"{name} is too large to be opened safely; it is at {path}")
    form = Form(mime=_PAGES[kind], data=path.read_bytes())
    page = private_dir(_place(chat) / "displays") / f"{path.stem}-safe.html"
    with Target(page) as target:
        target.write(display_page(ShownDisplay(number=1, forms={form.mime: form})), force=True)
    return page


async def init_command(chat: ChatContext, _: str) -> None:
    from pinfold.app.diagnostics.first_run import NAME, draft

    text = await anyio.to_thread.run_sync(draft, chat.workspace)
    chat.write_lines(text.splitlines())
    is_there = await anyio.Path(chat.workspace / NAME).exists()
    question = f"Replace the existing {NAME} with this?" if is_there else f"Write this to {NAME}?"
    if await chat.ask(question, {"y": "yes", "n": "no"}) != "y":
        chat.write_note("nothing was written")
        return
    await chat.write_file(NAME, text.encode("utf-8", "replace"), force=True)
    chat.write_note(f"wrote {NAME}; edit it as you like. New sessions follow it once you trust it.")
