"""/plan and /notebook: the plan and the lab notebook of the session, as the user sees and changes them."""

from __future__ import annotations

from pathlib import Path
from typing import cast, get_args

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from pinfold.app import plan_in_words
from pinfold.app.storage.exports import Target
from pinfold.events import Configure, LabNote, NoteKind, Plan, PlanTask, TaskStatus
from pinfold.front.chat.commands.context import BadArguments, ChatContext, parse_number
from pinfold.text import first_line, numerous, presentable_line

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
            changed = replace(plan, tasks=(*plan.tasks, PlanTask(text=first_line(more.strip()))))
        case "lock":
            changed = replace(plan, locked=True, state="planning")
        case "agree":
            changed = replace(plan, locked=False, state="executing")
        case "clear":
            changed = Plan(notes=plan.notes)
        case "save":
            outside = (await chat.link.status()).outside
            data = msgspec.json.format(msgspec.json.encode(plan)) + b"\n"
            await anyio.to_thread.run_sync(_save, chat.workspace, data, outside)
            chat.write_note(f"saved {_FILE}")
            return
        case _ if word in get_args(TaskStatus) and more.strip():
            number = parse_number(more, "task of the plan")
            if number > len(plan.tasks):
                raise BadArguments(f"the plan has {numerous('task', len(plan.tasks))}; /plan shows them")
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
        note = LabNote(kind=cast("NoteKind", word), text=first_line(more.strip()))
        await _change(chat, replace(plan, notes=(*plan.notes, note)))
    elif word == "remove" and more.strip():
        number = parse_number(more, "note")
        if number > len(plan.notes):
            raise BadArguments(f"the lab notebook has {numerous('note', len(plan.notes))}")
        await _change(chat, replace(plan, notes=(*plan.notes[: number - 1], *plan.notes[number:])))
    else:
        raise BadArguments("use /notebook hypothesis|result|decision TEXT, or /notebook remove N")


def _save(workspace: Path, data: bytes, outside: str) -> None:
    try:
        (workspace / _FILE).parent.mkdir(exist_ok=True)
    except OSError as error:
        raise BadArguments(f"{_FILE} cannot be written: {error.strerror}") from error
    with Target(workspace / _FILE, [workspace]) as target:
        target.write(data, force=True, outside=outside)


async def _change(chat: ChatContext, plan: Plan) -> None:
    await chat.link.submit(Configure(plan=plan))
    _show(chat, plan)


def _show(chat: ChatContext, plan: Plan) -> None:
    words = plan_in_words(plan)
    if words:
        chat.write_lines(map(presentable_line, words.splitlines()))
    else:
        chat.write_note(f"There is no plan yet; the agent makes one, or {_USAGE}")
