"""/vars, /tools, /cost, /sent, /thinking, /output, /agents, /skills, /mcp and /memory: show what is in a session."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext

import anyio.to_thread

from pinfold.app import load_config, sum_outbound
from pinfold.app.session import Note, open_memory, search_notes
from pinfold.events import FLOW, ActionFinished, ActionId, ActionProposed, CallTool, Json, SessionId
from pinfold.front import pages
from pinfold.front.chat.commands.context import BadArguments, ChatContext, parse_number
from pinfold.front.chat.renderers.transcript import LineSanitizer, SpacedTranscript
from pinfold.text import cap_text, presentable, presentable_line

_LOOKED_AT = 8 << 20
"""Characters of an output that are prepared for the screen."""
_PRINTED = 1 << 20
"""Characters of an output that are printed where there is no pager."""
_IN_CHAT = 20_000
"""Longest transcript of a sub-agent, in characters, that is rendered as markdown; a longer one goes to the pager."""


async def vars_command(chat: ChatContext, rest: str) -> None:
    chat.write_table(pages.variables_page(await chat.query("variables"), rest, chat.transcript.width))


async def tools_command(chat: ChatContext, rest: str) -> None:
    chat.write_lines(pages.tools_page(await chat.query("tools"), rest, chat.transcript.width))
    chat.write_note("After a crash: pure calls are retried, keyed ones retried safely, once never.")


async def agents_command(chat: ChatContext, rest: str) -> None:
    from pinfold.app.session.agent_tools import START, runs_in

    starts: set[ActionId] = set()
    runs: list[dict[str, Json]] = []
    for entry in await chat.load_entries():
        match entry.event:
            case ActionProposed(id=id_, action=CallTool(tool=tool)) if tool == START:
                starts.add(id_)
            case ActionFinished(id=id_, observation=record) if id_ in starts:
                runs += runs_in(record)
            case _:
                pass
    if not runs:
        raise BadArguments("no sub-agent has run; code starts one with agents.run(...)")
    if not rest:
        chat.write_lines([presentable_line(str(run["line"])) for run in runs])
        chat.write_note("/agents NAME shows everything that sub-agent did")
        return
    chosen = [str(run["session"]) for run in runs if run["name"] == rest]
    if not chosen:
        raise BadArguments(f"no sub-agent is called {rest!r}; /agents lists them")
    shown = await anyio.to_thread.run_sync(_read_agent, chat.session, SessionId(chosen[-1]))
    if len(shown) > _IN_CHAT:
        await _show_in_pager(chat, _format_output(shown))
        return
    from pinfold.front.chat.renderers.markdown import MarkdownStream

    await MarkdownStream(SpacedTranscript(chat.transcript)).write_all(shown)


def _read_agent(session: SessionId, agent: SessionId) -> str:
    """Return all that a sub-agent did, as markdown. Raises ConfigError."""
    from pinfold.app import ConfigError, SessionStore
    from pinfold.app.storage.exports import build_transcript
    from pinfold.app.storage.exports.md import to_md
    from pinfold.app.storage.session_store import read_session

    folder = SessionStore().folder_of(session) / "agents" / agent
    if not folder.is_dir():
        raise ConfigError("its log is missing: the session is ephemeral, or it was cleaned up")
    with read_session(folder, agent) as (log, _):
        page, _ = to_md(build_transcript(list(log.read()), log.blobs.get))
    return page.decode("utf-8", "replace")


async def cost_command(chat: ChatContext, _: str) -> None:
    chat.write_table(pages.cost_page(await chat.load_history(), chat.transcript.width))


async def sent_command(chat: ChatContext, _: str) -> None:
    sent = sum_outbound(await chat.load_entries())
    (chat.write_table if sent else chat.write_lines)(pages.egress_page(sent, chat.transcript.width))
    patterns = [str(one["pattern"]) for one in await chat.query("grants")]
    if to := [pages.describe_pattern(one).removeprefix("sending to ") for one in patterns if one.startswith(FLOW)]:
        chat.write_note(f"Pinfold may send data without asking to {', '.join(to)}; revoke with /grants")


async def thinking_command(chat: ChatContext, _: str) -> None:
    chat.renderer.thinking = not chat.renderer.thinking
    if chat.renderer.thinking and (thought := chat.renderer.last_thought()):
        chat.write_note(thought)
    chat.write_note(f"reasoning is {'shown' if chat.renderer.thinking else 'collapsed'} from here on")


async def output_command(chat: ChatContext, rest: str) -> None:
    history = await chat.load_history()
    outputs = history.outputs
    if rest:
        name = f"cell {parse_number(rest, 'cell')}"
        outputs = tuple(one for one in outputs if one.name == name)
        if not outputs:
            raise BadArguments(f"{name} has no output; {history.last_cell}")
    if not outputs:
        raise BadArguments("nothing has run yet")
    chosen = outputs[-1]
    text = chosen.text
    if chosen.blob is not None:
        text = (await chat.link.blob(chosen.blob)).decode("utf-8", "replace")
    shown = await anyio.to_thread.run_sync(_format_output, text)
    await _show_in_pager(chat, f"{chosen.name}\n{shown}")


def _format_output(text: str) -> str:
    """Make the output safe line by line; of a very long output only the two ends."""
    lines = LineSanitizer()
    text = cap_text(text, _LOOKED_AT, whole="pinfold export")
    return "\n".join(line for one in text.split("\n") if (line := lines.line(one)) is not None).rstrip()


async def _show_in_pager(chat: ChatContext, text: str) -> None:
    pager = _pager()
    if pager is None:
        chat.transcript.write(cap_text(text, _PRINTED, whole="PAGER=less shows it"))
        return

    def show() -> None:
        env = {"LESS": "-FRX", **os.environ}  # by default less clears the screen when it exits
        subprocess.run(pager, input=text.encode("utf-8", "replace"), env=env, check=False)

    from prompt_toolkit.application import get_app_or_none, in_terminal

    async with in_terminal() if get_app_or_none() else nullcontext():
        await anyio.to_thread.run_sync(show)


def _pager() -> Sequence[str] | None:
    """Return the command in $PAGER, if there is a terminal for it."""
    try:
        argv = shlex.split(os.environ.get("PAGER", ""))
    except ValueError:
        return None
    if not argv or shutil.which(argv[0]) is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    return argv


async def skills_command(chat: ChatContext, rest: str) -> None:
    from pinfold.app.trust import find_skill, find_skills

    if rest:
        skill = await anyio.to_thread.run_sync(find_skill, rest, chat.workspace)
        chat.write_note(skill.problem or f"{skill.name} is {skill.state}; files: {', '.join(skill.files)}")
        chat.write_lines(presentable(skill.files.get("SKILL.md", b"").decode("utf-8", "replace")).splitlines())
        return
    found = await anyio.to_thread.run_sync(find_skills, chat.workspace)
    chat.write_lines(line for _, line in pages.skill_rows(found))
    if not found:
        chat.write_note("No skills. Make one: pinfold skill new NAME; or ask the agent to keep a function as a tool.")
    if any(one.state in ("untrusted", "changed") for one in found):
        chat.write_note("The agent sees trusted skills only: pinfold skill trust NAME.")


async def mcp_command(chat: ChatContext, rest: str) -> None:
    match rest.split():
        case []:
            servers = await chat.query("servers")
            chat.write_lines(pages.servers_page(servers, chat.transcript.width))
            if any(one.get("problem") for one in servers):
                words = "A failed server is restarted at its next use. Accept changed tools with /mcp trust SERVER."
                chat.write_note(words)
        case ["trust", name]:
            await _trust(chat, name)
        case _:
            raise BadArguments("write /mcp, or /mcp trust SERVER")


async def _trust(chat: ChatContext, name: str) -> None:
    """Trust a server, as `pinfold mcp trust` does. The connection stays open, so exactly what was shown is trusted."""
    from pinfold.app.session.mcp import ServerFailed, find_spec, inspect_servers, load_servers_for
    from pinfold.app.trust import describe_server

    spec = find_spec(load_servers_for(chat.workspace), name)
    chat.write_note(f"starting {spec.name} to read its tools")
    async with inspect_servers((spec,), chat.workspace) as found:
        if failed := await found.connect(spec.name):
            raise ServerFailed(failed[spec.name])
        difference = found.difference(spec.name)
        if found.is_trusted(spec.name) and not difference:
            chat.write_note(f"{spec.name} is already trusted")
            return
        shown = presentable(
            difference.text if difference else pages.annotations_page(spec.name, found.annotations(spec.name))
        ).splitlines()
        chat.write_lines([*describe_server(spec), *shown])
        if await chat.ask(f"Accept all of this for {spec.name}?", {"y": "yes", "n": "no"}) == "y":
            found.trust(spec.name)
            chat.write_note(f"{spec.name} is trusted until it changes")


# Notes

_NOTES_SHOWN = 20


async def memory_command(chat: ChatContext, rest: str) -> None:
    memory = open_memory(chat.workspace)
    word, _, more = rest.partition(" ")
    more = more.strip()
    match word:
        case "" | "list":
            notes = await anyio.to_thread.run_sync(memory.latest, _NOTES_SHOWN)
            _show_notes(chat, notes, "No notes yet; the agent keeps one when you ask it to remember something.")
        case "search" if more:
            config = load_config(chat.workspace).config
            found = await anyio.to_thread.run_sync(
                lambda: search_notes(more, _NOTES_SHOWN, config, workspace=chat.workspace)
            )
            if found.notice:
                chat.write_note(found.notice)
            _show_notes(chat, found.notes, "No note matches these words.")
        case "show" if more:
            note = await anyio.to_thread.run_sync(memory.get, parse_number(more, "note"))
            chat.write_lines(presentable(note.text).splitlines())
            chat.write_lines(presentable_line(f"  {name:<9} {value}") for name, value in pages.note_fields(note))
        case "forget" if more:
            number = parse_number(more, "note")
            await anyio.to_thread.run_sync(lambda: memory.forget(number, trusted=True))
            chat.write_note(f"note {number} is forgotten")
        case _:
            raise BadArguments("use /memory, /memory search WORDS, /memory show N or /memory forget N")


def _show_notes(chat: ChatContext, notes: list[Note], nothing: str) -> None:
    if not notes:
        chat.write_note(nothing)
        return
    chat.write_lines(pages.notes_page(notes, width=chat.transcript.width))
    chat.write_note("full text: /memory show N; delete: /memory forget N")
