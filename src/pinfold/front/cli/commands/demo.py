"""`pinfold demo`: a recorded model drives the real sandbox. It shows undo and a fork, and checks that undo worked."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import textwrap
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import click
from msgspec.structs import replace

from pinfold import events
from pinfold.app import (
    LiveSession,
    Options,
    PageQuery,
    SessionStore,
    acquire,
    event_of,
    follow,
    fork,
    new_session_options,
    resume_options,
    rewind,
    rewound_in_words,
)
from pinfold.app.diagnostics.demo import Part, demo_model_name, make_demo_folder, provide_table
from pinfold.events import PinfoldError, SessionId
from pinfold.front.flags import PATH, sandbox_option
from pinfold.text import NO_OUTPUT, abbreviate_home, presentable, presentable_line

_WIDEST = 90
_READING_S = 0.7
"""Pause after a few lines."""
_TYPING_S = 0.012
"""Pause after each letter the user would type."""
_SILENT = ("", NO_OUTPUT, "null")


class DemoFailed(PinfoldError):
    """The demo did not work as it claims."""


@click.command("demo")
@click.option("--workspace", type=PATH, metavar="DIR", help="Work in this folder and keep it; uses a sales.csv in it.")
@sandbox_option
@click.option("--fast", is_flag=True, help="Do not pause for reading.")
def demo_command(workspace: Path | None, sandbox: str | None, fast: bool) -> int:
    """Show in half a minute what Pinfold does: offline, without a key, with a recorded model and a real sandbox."""
    session = events.new_session_id()
    folder = workspace or make_demo_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"{folder} cannot be made: {error.strerror}") from error
    flags = {"model.name": demo_model_name("regions"), "run.mode": "auto", "sandbox.provider": sandbox}
    options = replace(new_session_options(session, folder, flags), title="demo")
    table = provide_table(folder)
    screen = _Screen(is_paced=not fast and sys.stdout.isatty())
    demo = _Demo(screen, session, options, table)
    anyio.run(demo.play)
    demo.show_next_steps(kept=workspace)
    return 0


class _Screen:
    """Writes for the viewer, slowly enough to read."""

    def __init__(self, *, is_paced: bool) -> None:
        self._is_paced = is_paced
        dull = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") == "dumb"
        self._is_styled = sys.stdout.isatty() and not dull
        self._width = min(_WIDEST, max(20, shutil.get_terminal_size().columns))

    async def show_typed(self, text: str) -> None:
        """Show what the user would type."""
        self._write("\n" + self._style("you> ", bold=True), end="")
        for piece in text if self._is_paced else (text,):
            self._write(self._style(piece, bold=True), end="")
            await anyio.sleep(_TYPING_S if self._is_paced else 0)
        self._write("")
        await self.pause(0.5)

    async def show_reply(self, text: str) -> None:
        """Show what the model says, marked as recorded."""
        self._write_wrapped("recorded model> ", text, "  ")
        await self.pause()

    async def show_remark(self, text: str) -> None:
        """Show a comment by the demo itself."""
        self._write("")
        self._write_wrapped("", text, "")
        await self.pause()

    def show_code(self, text: str) -> None:
        for line in presentable(text).rstrip("\n").splitlines():
            self._write(self._style("  | ", dim=True) + self._style(line, fg="cyan"))

    async def show_output(self, text: str) -> None:
        for line in presentable(text).rstrip("\n").splitlines():
            self._write(f"    {line}")
        await self.pause()

    def show_fact(self, what: str, value: str, *, good: bool = False) -> None:
        value = abbreviate_home(presentable_line(value))
        self._write(f"  {what:<24} {self._style(value, fg='green') if good else value}")

    def show_detail(self, text: str) -> None:
        self._write_wrapped("  ", text, "  ")

    async def pause(self, share: float = 1.0) -> None:
        if self._is_paced:
            await anyio.sleep(_READING_S * share)

    def write(self, text: str) -> None:
        self._write(presentable(text))

    def _write_wrapped(self, label: str, text: str, indent: str) -> None:
        lines = textwrap.wrap(presentable_line(f"{label}{text}"), self._width - 1, subsequent_indent=indent)
        first, *rest = lines or [""]
        self._write("\n".join((self._style(label, dim=True) + first[len(label) :], *rest)))

    def _style(self, text: str, **how: Any) -> str:
        return click.style(text, **how) if self._is_styled and text else text

    @staticmethod
    def _write(text: str, end: str = "\n") -> None:
        sys.stdout.write((text + end).encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding))
        sys.stdout.flush()


class _Demo:
    def __init__(self, screen: _Screen, session: SessionId, options: Options, table: Path) -> None:
        self._screen = screen
        self._options = options
        self._table = table
        self._store = SessionStore()
        self._kept = session
        self._discarded: SessionId | None = None
        self._handled = 0
        """Sequence number of the last event that was handled."""
        self._began = time.monotonic()

    async def play(self) -> None:
        """Play the demo. Raises DemoFailed if undo or fork do not do what the demo claims."""
        screen, session = self._screen, self._kept
        await screen.show_remark(
            "The model in this demo is RECORDED: its replies come from a file, so that no key and no network are needed. "
            "The rest is real: its code runs in an isolated session on this machine, on the table below."
        )
        screen.show_fact("the table", str(self._table))
        async with acquire(self._store.folder_of(session), session, self._options) as live:
            await self._turn(live, "regions", "How much did each region sell? The table is sales.csv.")
            await self._turn(live, "months", "And by month? Draw it.")
            if (picture := self._table.with_name("revenue.png")).exists():
                screen.show_fact("the picture", str(picture))
            await self._mistake(live)
            await self._branches(live)
        if self._discarded:  # only after it is closed
            self._store.remove(self._discarded)

    async def _mistake(self, live: LiveSession) -> None:
        screen, before, size = self._screen, _digest(self._table), await _table_size(live)
        await self._turn(live, "mistake", "Remove the column discount from the file.")
        await screen.show_remark("That was a mistake: other columns and most rows are gone too. So, undo:")
        screen.show_fact("sales.csv before", before)
        screen.show_fact("sales.csv now", _digest(self._table))
        await screen.show_typed("/undo")
        rewound = await rewind(live, events.Undo(), live.log.seq)
        screen.show_detail(rewound_in_words(rewound))
        after = _digest(self._table)
        if after != before:
            raise DemoFailed(f"the undo did not bring {self._table} back: {after} instead of {before}")
        screen.show_fact("sales.csv now", f"{after}  the same bytes", good=True)
        if (now := await _table_size(live)) != size:
            raise DemoFailed(f"the undo did not bring the variable sales back: {now} instead of {size}")
        screen.show_fact("the variable sales now", f"{now}  as before", good=True)
        await screen.pause()

    async def _branches(self, live: LiveSession) -> None:
        screen, first = self._screen, self._kept
        await screen.show_remark(
            "Now two ways to go on. A fork is a second session that starts with everything the first one has, also its "
            "variables:"
        )
        await screen.show_typed("/fork")
        second, _ = await fork(self._store, first, "demo, the branch")
        screen.show_fact("this session", first)
        screen.show_fact("the fork", second)
        place = self._store.folder_of(second)
        options = resume_options(second, place, None, {"model.name": demo_model_name("trend")})
        try:
            ours = await self._guess(live, "mean", "What will the next month bring? The mean of the last three?")
            async with acquire(place, second, replace(options, notices=())) as other:
                self._handled = other.log.seq
                theirs = await self._guess(other, "trend", "[fork] What will it bring, if the trend goes on?")
        except BaseException:
            self._store.remove(second)
            raise
        self._kept, self._discarded = (second, first) if theirs < ours else (first, second)
        which = "fork" if self._kept == second else "first session"
        await screen.show_remark(f"The {which} missed by less, so this branch is kept and the other one is deleted.")

    async def _guess(self, live: LiveSession, part: Part, prompt: str) -> float:
        """Run a forecast and return its error."""
        await self._turn(live, part, prompt)
        return float(await _value(live, "missed"))

    async def _turn(self, live: LiveSession, part: Part, prompt: str) -> None:
        screen, turn, cells = self._screen, events.new_turn_id(), set[events.ActionId]()
        await screen.show_typed(prompt)
        await live.submit(events.Configure(model=demo_model_name(part)))
        async with aclosing(follow(live, events.Say(turn=turn, text=prompt), self._handled)) as feed:
            async for item in feed:
                match event_of(item):
                    case events.Noticed(text=text):
                        await screen.show_remark(f"(Note: {text})")
                    case events.ModelReplied(text=text, actions=actions) if actions:
                        await screen.show_reply(text)
                    case events.ActionProposed(id=id_, turn=of, action=events.RunCell(code=code)) if of == turn:
                        cells.add(id_)
                        screen.show_code(code)
                    case events.ActionFinished(id=id_, outcome=outcome, observation=seen) if id_ in cells:
                        if outcome != "ok":
                            raise DemoFailed(f"a cell ended with {outcome}: {presentable_line(seen[-300:])}")
                        if seen.strip() not in _SILENT:
                            await screen.show_output(seen)
                    case events.TurnEnded(text=text):
                        self._handled = live.log.seq
                        return await screen.show_reply(text)
                    case events.TurnFailed(error=words) | events.TurnInterrupted(reason=words):
                        raise DemoFailed(words)
                    case _:
                        pass
        raise DemoFailed("the session ended before the turn did")

    def show_next_steps(self, kept: Path | None) -> None:
        took = time.monotonic() - self._began
        self._screen.write(f"\nThat took {took:.0f} s. What to type next:")
        place = shlex.quote(str(kept)) if kept else "DIR"
        for typed, words in (
            (f"pinfold exec -s {self._kept} -c 'len(sales)'", "the session lives on after this process"),
            (f"pinfold demo --workspace {place}", f"edit {place}/sales.csv: the numbers change"),
            ("pinfold", "the same with your own model and files"),
        ):
            self._screen.write(f"  {typed}\n      {words}")


async def _table_size(live: LiveSession) -> str:
    """Describe the variable `sales` without running a cell, so that the cells shown keep their numbers."""
    page = await live.variable_page("sales", PageQuery(limit=1))
    return f"{page.total} rows of {len(page.columns)} columns"


async def _value(live: LiveSession, code: str) -> str:
    """Return the value of an expression in the session."""
    performed = await live.act(events.new_action_id(), events.RunCell(code=code))
    if performed.value is None:
        raise DemoFailed(f"{code} has no value in the session: {presentable_line(performed.observation)}")
    return performed.value


def _digest(table: Path) -> str:
    data = table.read_bytes()
    return f"sha256 {hashlib.sha256(data).hexdigest()[:12]}, {len(data):,} bytes"
