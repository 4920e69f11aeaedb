"""/copy, /open and /init: what of the session goes to the clipboard, to a program of the user's, or into AGENTS.md."""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from pinfold.app import SessionStore
from pinfold.app.storage.exports import Form, Target, display_file, displays_in
from pinfold.events import TurnEnded
from pinfold.front.chat.commands.output import BadArguments, load_entries, write_lines, write_note
from pinfold.front.cli.displays import open_file

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

_CLIPBOARD = 70_000
"""Bytes that terminals are known to take at once."""
_PASSIVE = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".pdf", ".txt", ".md", ".log", ".json"}
"""What is shown by any program that opens it, and run by none."""
_PAGE = 20 << 20
_PAGES = {".html": "text/html", ".htm": "text/html", ".svg": "image/svg+xml"}
"""What a browser would run."""


async def copy_command(talk: ChatContext, rest: str) -> None:
    texts = [entry.event.text for entry in await load_entries(talk) if isinstance(entry.event, TurnEnded)]
    answer = next((text for text in reversed(texts) if text.strip()), "")
    if not answer:
        raise BadArguments("there is no answer yet")
    data = answer.encode("utf-8", "replace")
    if rest:
        outside = (await talk.link.status()).outside
        await anyio.to_thread.run_sync(_write, talk.workspace, rest, data, outside)
        write_note(talk, f"wrote the last answer to {rest}")
    elif not talk.paper.steered:
        raise BadArguments("this terminal has no clipboard; /copy FILE writes the last answer to a file")
    elif len(data) > _CLIPBOARD:
        raise BadArguments(f"the last answer is too long for a clipboard ({len(data):,} bytes); use /copy FILE")
    else:
        talk.paper.raw(f"\x1b]52;c;{b64encode(data).decode()}\x07", 0)
        write_note(
            talk,
            f"sent the last answer ({len(answer):,} characters) to your terminal's clipboard (OSC 52); "
            "if it did not arrive: /copy FILE",
        )


def _write(workspace: Path, name: str, data: bytes, outside: str, *, force: bool = False) -> None:
    with Target(workspace / name, [workspace]) as target:
        target.write(data, force=force, outside=outside)


async def open_command(talk: ChatContext, rest: str) -> None:
    if rest and not rest.isdecimal():
        path = await anyio.to_thread.run_sync(_file, talk, rest)
    else:
        path = await _display(talk, int(rest or 0))
    await anyio.to_thread.run_sync(open_file, path)
    write_note(talk, f"opened {path}")


async def _display(talk: ChatContext, number: int) -> Path:
    """By its number, or the last; as a file in which nothing runs. Raises BadWords."""
    entries = await load_entries(talk)
    shown = displays_in(entries)
    number = number or len(shown)
    if not 1 <= number <= len(shown):
        has = f"there are {len(shown)} figures and tables" if shown else "nothing was shown yet"
        raise BadArguments(f"{has}; /open FILE opens a file of this folder")
    blobs = {id_: await talk.link.blob(id_) for id_ in shown[number - 1].mime.values()}
    return display_file(_place(talk), entries, blobs.__getitem__, number, safe=True)


def _place(talk: ChatContext) -> Path:
    folder = SessionStore().folder_of(talk.session)
    if not folder.is_dir():
        raise BadArguments("this session leaves nothing behind (--ephemeral), so there is no file to open")
    return folder


def _file(talk: ChatContext, name: str) -> Path:
    """Nothing that the workspace holds is run: of what a browser would run, a page in which nothing does. Raises BadWords."""
    path = (talk.workspace / name).resolve()
    if not path.is_file():
        raise BadArguments(f"there is no file {name}")
    kind = path.suffix.lower()
    if kind in _PASSIVE:
        return path
    if kind not in _PAGES:
        raise BadArguments(f"{kind or 'such'} files may run something when opened; open it yourself: {path}")
    from pinfold.app.paths import private_dir
    from pinfold.app.storage.exports.html import display_page
    from pinfold.app.storage.exports.transcript import ShownDisplay

    if path.stat().st_size > _PAGE:
        raise BadArguments(f"{name} is too large to be opened safely; it is at {path}")
    form = Form(mime=_PAGES[kind], data=path.read_bytes())
    page = private_dir(_place(talk) / "displays") / f"{path.stem}-safe.html"
    with Target(page) as target:
        target.write(display_page(ShownDisplay(number=1, forms={form.mime: form})), force=True)
    return page


async def init_command(talk: ChatContext, _: str) -> None:
    from pinfold.app.diagnostics.first_run import NAME, draft

    text = await anyio.to_thread.run_sync(draft, talk.workspace)
    write_lines(talk, text.splitlines())
    is_there = await anyio.Path(talk.workspace / NAME).exists()
    question = f"Replace {NAME}, which is there already, by this?" if is_there else f"Write this to {NAME}?"
    if await talk.ask(question, {"y": "yes", "n": "no"}) != "y":
        write_note(talk, "nothing was written")
        return
    outside = (await talk.link.status()).outside
    write = partial(_write, talk.workspace, NAME, text.encode("utf-8", "replace"), outside, force=True)
    await anyio.to_thread.run_sync(write)
    write_note(talk, f"wrote {NAME}; edit it as you like. New sessions follow it once you agree to it.")
