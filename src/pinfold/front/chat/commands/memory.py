"""/memory: the notes that sessions in this folder recall, listed, searched and forgotten by the user."""

from __future__ import annotations

import anyio.to_thread

from pinfold.app import load_config
from pinfold.app.session import Note, open_memory, search_notes
from pinfold.front.chat.commands.context import BadArguments, ChatContext, parse_number
from pinfold.front.pages import note_fields, notes_page
from pinfold.text import presentable, presentable_line

_SHOWN = 20


async def memory_command(chat: ChatContext, rest: str) -> None:
    memory = open_memory(chat.workspace)
    word, _, more = rest.partition(" ")
    more = more.strip()
    match word:
        case "" | "list":
            notes = await anyio.to_thread.run_sync(memory.latest, _SHOWN)
            _show(chat, notes, "No notes yet; the agent keeps one when you ask it to remember something.")
        case "search" if more:
            config = load_config(chat.workspace).config
            found = await anyio.to_thread.run_sync(lambda: search_notes(more, _SHOWN, config, workspace=chat.workspace))
            if found.notice:
                chat.write_note(found.notice)
            _show(chat, found.notes, "No note fits these words.")
        case "show" if more:
            note = await anyio.to_thread.run_sync(memory.get, parse_number(more, "note"))
            chat.write_lines(presentable(note.text).splitlines())
            chat.write_lines(presentable_line(f"  {name:<9} {value}") for name, value in note_fields(note))
        case "forget" if more:
            number = parse_number(more, "note")
            await anyio.to_thread.run_sync(lambda: memory.forget(number, trusted=True))
            chat.write_note(f"note {number} is forgotten")
        case _:
            raise BadArguments("use /memory, /memory search WORDS, /memory show N or /memory forget N")


def _show(chat: ChatContext, notes: list[Note], nothing: str) -> None:
    if not notes:
        chat.write_note(nothing)
        return
    chat.write_lines(notes_page(notes, width=chat.transcript.width))
    chat.write_note("whole: /memory show N; delete: /memory forget N")
