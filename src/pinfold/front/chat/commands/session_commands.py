"""/clear, /compact, /new, /rename, /fork, /branches, /sessions, /resume, /export, /exit; /undo, /redo, /rewind,
/checkpoint; /plan and /notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, get_args

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from pinfold import events
from pinfold.app import SessionStore, fork, plan_in_words
from pinfold.app.clients import SessionHistory, TurnRecord
from pinfold.app.session import checkpoints_in, search_conversations
from pinfold.app.storage import build_session_tree, list_nodes
from pinfold.events import NoteKind, Plan, SessionId
from pinfold.front.chat.commands.context import BadArguments, ChatContext, parse_number
from pinfold.front.pages import branches_page, columns, rewind_page, sessions_page, title_of
from pinfold.text import first_line, join_numbers, pluralize, presentable, presentable_line

_SHOWN = 30
"""Most sessions in a list, or turns to choose from."""
_TO_STDOUT = ("jsonl", "replay")
"""Formats that the command line writes to stdout unless a file is named."""


async def exit_command(chat: ChatContext, _: str) -> None:
    chat.leave()


async def clear_command(chat: ChatContext, _: str) -> None:
    await chat.link.submit(events.Clear())


async def compact_command(chat: ChatContext, rest: str) -> None:
    await chat.link.submit(events.Compact(keep=rest))


async def new_command(chat: ChatContext, _: str) -> None:
    await chat.require_idle("/new")
    await chat.switch(None)


async def rename_command(chat: ChatContext, rest: str) -> None:
    if not rest:
        raise BadArguments("what name? /rename TITLE")
    await chat.link.submit(events.Rename(title=rest))


def _refuse_unkept(chat: ChatContext) -> None:
    """Refuse an --ephemeral session. Raises BadArguments."""
    if not SessionStore().folder_of(chat.session).is_dir():
        raise BadArguments("an --ephemeral session cannot be forked or exported")


async def fork_command(chat: ChatContext, rest: str) -> None:
    _refuse_unkept(chat)
    new, damage = await fork(SessionStore(), chat.session, rest or None)
    if damage:
        chat.write_note(f"the log is damaged: {damage}; the rest was copied")
    chat.write_note(f"Forked as {new}. Same conversation and variables; shares this folder.")
    if (await chat.load_history()).is_busy:
        chat.write_note(f"a turn is running here; continue there later: /resume {new}")
    elif await chat.ask("Continue in the fork?", {"y": "yes", "n": "stay here"}) == "y":
        await chat.switch(new)
    else:
        chat.write_note(f"continue there with /resume {new}")


async def branches_command(chat: ChatContext, _: str) -> None:
    history = await chat.load_history()
    everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
    family = build_session_tree(chat.session, everyone)
    if not family.ancestors and not family.children:
        chat.write_note("this session has no forks; /fork makes one")
        return
    chat.write_lines(branches_page(history, family, chat.transcript.width))
    there = {kin.id for kin in everyone}
    kin = [*reversed(family.ancestors), *(one for _, one in family.children)]
    options = [(one.id, f"{one.id}  {title_of(one)}") for one in kin if one.id in there]
    if not options or history.is_busy:
        return
    if chosen := await chat.choose("Continue", [*options, ("", "stay here")]):
        await chat.switch(SessionId(chosen))


async def sessions_command(chat: ChatContext, rest: str) -> None:
    words = rest.lower().split()
    everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
    found = [kin for kin in everyone if all(word in f"{kin.id} {kin.title} {kin.workspace}".lower() for word in words)]
    if words:  # then sessions whose conversation matches, the best match first
        said = await anyio.to_thread.run_sync(lambda: search_conversations(rest, _SHOWN))
        by_id = {kin.id: kin for kin in everyone}
        found = [*dict.fromkeys([*found, *(by_id[SessionId(one.session)] for one in said if one.session in by_id)])]
    chat.write_lines(sessions_page(found[:_SHOWN], chat.session, width=chat.transcript.width, words=rest))
    if len(found) > _SHOWN:
        chat.write_note(f"and {len(found) - _SHOWN:,} more; /sessions WORDS narrows it down")
    if any(kin.id != chat.session for kin in found):
        chat.write_note("continue one: /resume SESSION")


async def resume_command(chat: ChatContext, rest: str) -> None:
    if rest:
        session, _ = SessionStore().find(rest)
    else:
        everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
        options = [
            (kin.id, presentable_line(f"{kin.last[:16].replace('T', ' ')}  {title_of(kin)}"))
            for kin in everyone
            if kin.id != chat.session
        ]
        if not options:
            raise BadArguments("there is no other session yet; /new starts one")
        chosen = await chat.choose("Continue", options[:_SHOWN])
        if chosen is None:
            return
        session = SessionId(chosen)
    if session == chat.session:
        chat.write_note("you are in that session")
        return
    await chat.require_idle(f"/resume {session}")
    await chat.switch(session)


async def export_command(chat: ChatContext, rest: str) -> None:
    form, _, file = rest.partition(" ")
    if not form:
        raise BadArguments("which format? /export FORMAT [FILE], e.g. /export md report.md")
    _refuse_unkept(chat)
    file = file.strip()
    if not file and form in _TO_STDOUT:
        file = f"{chat.session}.{form}.jsonl" if form == "replay" else f"{chat.session}.jsonl"
    where = ("-o", file) if file else ()
    await chat.run_cli_command("export", chat.session, "--to", form, *where, done=f"written to {file}")


_WHATS: Sequence[tuple[events.Rewindable, str]] = (
    ("all", "chat, files and variables"),
    ("chat", "only the chat; files and variables stay"),
    ("files", "only the files"),
    ("variables", "only the variables"),
)


async def undo_command(chat: ChatContext, rest: str) -> None:
    await chat.link.submit(events.Undo(to=_target(await chat.load_history(), rest)))


def _target(history: SessionHistory, rest: str) -> int | None:
    """Return the cell to go back to; None undoes the last cell. Raises BadArguments."""
    match rest.split():
        case []:
            return None
        case ["to", cell]:
            return parse_number(cell, "cell", least=0)
        case [count]:
            number = parse_number(count, "number of cells")
            if number > len(history.path):
                there = f"only {len(history.path)}" if history.path else "none"
                raise BadArguments(f"{number} cells cannot be undone: there are {there}")
            return (0, *history.path)[-number - 1]
        case _:
            raise BadArguments("write /undo, /undo N for the last N cells, or /undo to CELL")


async def redo_command(chat: ChatContext, _: str) -> None:
    await chat.link.submit(events.Redo())


async def rewind_command(chat: ChatContext, rest: str) -> None:
    number, _, word = rest.partition(" ")
    history = await chat.require_idle("/rewind")
    turn = await _turn(chat, history, number)
    if turn is None:
        return
    what = await _what(chat, word.strip())
    if what is None:
        return
    chat.write_lines(rewind_page(history, turn, what))
    if await chat.ask("Go back?", {"y": "yes", "n": "no"}) == "y":
        await chat.link.submit(events.Rewind(turn=turn.id, what=what))


async def _turn(chat: ChatContext, history: SessionHistory, number: str) -> TurnRecord | None:
    if number:
        return history.turn(parse_number(number, "turn"))
    turns = [turn for turn in history.turns if not turn.forgotten]
    if not turns:
        raise BadArguments("there is no turn to go back to yet")
    options = [(str(turn.number), _line(turn)) for turn in reversed(turns)]
    chosen = await chat.choose("Go back to before", options[:_SHOWN])
    return next((turn for turn in turns if str(turn.number) == chosen), None)


def _line(turn: TurnRecord) -> str:
    cells = f"  ({join_numbers('cell', turn.cells)})" if turn.cells else ""
    return presentable_line(f"{turn.number:>3}  {first_line(presentable(turn.text), 50)}{cells}")


async def _what(chat: ChatContext, word: str) -> events.Rewindable | None:
    options = [(what, f"{what:<10}{words}") for what, words in _WHATS]
    chosen = word or await chat.choose("What to undo", options)
    found: events.Rewindable | None = next((what for what, _ in _WHATS if what == chosen), None)
    if word and found is None:
        raise BadArguments(f"{word!r} cannot be rewound; use all, chat, files or variables")
    return found


async def checkpoint_command(chat: ChatContext, rest: str) -> None:
    match rest.split():
        case [] | ["list"]:
            await _list_checkpoints(chat)
        case [("on" | "off") as word]:
            await chat.link.submit(events.Configure(checkpoints=word == "on"))
        case ["restore", number] | [number]:
            chat.write_note(await chat.link.restore(parse_number(number, "checkpoint")))
        case _:
            raise BadArguments("write /checkpoint, /checkpoint on, /checkpoint off, or /checkpoint N to go back")


async def _list_checkpoints(chat: ChatContext) -> None:
    made = checkpoints_in(await chat.load_entries())
    on = (await chat.load_history()).state.checkpoints
    if made:
        rows = [("", "made", "commit", "")]
        rows += [(str(one.number), one.at[:19].replace("T", " "), one.commit[:12], one.message) for one in made]
        chat.write_table(columns(rows, width=chat.transcript.width))
        chat.write_note(f"checkpoints are {'on' if on else 'off'}; restore one: /checkpoint N")
    elif on:
        chat.write_note("checkpoints are on; there are none yet")
    else:
        chat.write_note("checkpoints are off; /checkpoint on makes a commit after each cell that changes files")


_FILE = ".pinfold/project.json"
_USAGE = "/plan add TEXT, /plan done|doing|todo|dropped N, /plan lock, /plan agree, /plan save or /plan clear"


async def plan_command(chat: ChatContext, rest: str) -> None:
    plan = (await chat.load_history()).state.plan
    word, _, more = rest.partition(" ")
    match word:
        case "":
            _show(chat, replace(plan, notes=()))
            return
        case "add" if more.strip():
            changed = replace(plan, tasks=(*plan.tasks, events.PlanTask(text=first_line(more.strip()))))
        case "lock":
            changed = replace(plan, locked=True, state="planning")
        case "agree":
            changed = replace(plan, locked=False, state="executing")
        case "clear":
            changed = Plan(notes=plan.notes)
        case "save":
            await _save(chat, plan)
            return
        case _ if word in get_args(events.TaskStatus) and more.strip():
            number = parse_number(more, "task of the plan")
            if number > len(plan.tasks):
                raise BadArguments(f"the plan has {pluralize('task', len(plan.tasks))}; /plan shows them")
            tasks = [*plan.tasks]
            tasks[number - 1] = replace(tasks[number - 1], status=word)
            changed = replace(plan, tasks=tuple(tasks))
        case _:
            raise BadArguments(f"use {_USAGE}")
    await _change(chat, changed)
    if changed.locked and not plan.locked:
        chat.write_note("Plan mode: nothing is changed until you type /plan agree.")


async def notebook_command(chat: ChatContext, rest: str) -> None:
    plan = (await chat.load_history()).state.plan
    word, _, more = rest.partition(" ")
    if not word:
        if not plan.notes:
            chat.write_note("The lab notebook is empty; the agent writes hypotheses, results and decisions into it.")
        chat.write_lines(
            presentable_line(f"{number}. {note.kind}: {note.text}") for number, note in enumerate(plan.notes, 1)
        )
    elif word in get_args(NoteKind) and more.strip():
        note = events.LabNote(kind=cast("NoteKind", word), text=first_line(more.strip()))
        await _change(chat, replace(plan, notes=(*plan.notes, note)))
    elif word == "remove" and more.strip():
        number = parse_number(more, "note")
        if number > len(plan.notes):
            raise BadArguments(f"the lab notebook has {pluralize('note', len(plan.notes))}")
        await _change(chat, replace(plan, notes=(*plan.notes[: number - 1], *plan.notes[number:])))
    else:
        raise BadArguments("use /notebook hypothesis|result|decision TEXT, or /notebook remove N")


async def _save(chat: ChatContext, plan: Plan) -> None:
    try:
        (chat.workspace / _FILE).parent.mkdir(exist_ok=True)
    except OSError as error:
        raise BadArguments(f"{_FILE} cannot be written: {error.strerror}") from error
    await chat.write_file(_FILE, msgspec.json.format(msgspec.json.encode(plan)) + b"\n", force=True)
    chat.write_note(f"saved {_FILE}")


async def _change(chat: ChatContext, plan: Plan) -> None:
    await chat.link.submit(events.Configure(plan=plan))
    _show(chat, plan)


def _show(chat: ChatContext, plan: Plan) -> None:
    words = plan_in_words(plan)
    if words:
        chat.write_lines(map(presentable_line, words.splitlines()))
    else:
        chat.write_note(f"There is no plan yet; the agent makes one, or {_USAGE}")
