"""What a turn reads and prints: it reads the prompt, standard input and files; the answer or a cell's own output goes
to stdout, everything else to stderr."""

from __future__ import annotations

import re
import select
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

import click

from pinfold import events
from pinfold.app import Link, Opening, changed_in_words, check_paths, event_of, parse_named_paths
from pinfold.app.session.agent_tools import runs_in
from pinfold.events import ActionFinished, Delta, Entry, Event
from pinfold.front.cli.terminal import can_be_redrawn, is_closed
from pinfold.front.progress import Spinner, say
from pinfold.text import cap_text, presentable

FIRST_BYTE_S = 3.0
"""How long to wait for piped data when there is a prompt too: many programs leave an open, empty pipe."""
_PROMPT = 1 << 20
_STDIN = "-"
_SHOWN = 2000
_DENIED = "denied: this needs your approval, and `pinfold exec` cannot ask; `--mode full` allows it"


def prompt_from(prompt: str | None, file: str | None) -> str:
    """Return the prompt from the argument, a file or standard input. Raises UsageError."""
    if prompt is not None and file is not None:
        raise click.UsageError("give either a PROMPT or -f FILE; a file to work on goes with --attach or --data")
    if file is not None and file != _STDIN:
        try:
            with Path(file).open("rb") as opened:
                text = _decode_prompt(opened.read(_PROMPT + 1), file)
        except OSError as error:
            raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error
    elif prompt is not None and prompt != _STDIN:
        text = prompt
    elif (stdin := _get_piped_stdin()) is None:
        raise click.UsageError("nothing to do: give a PROMPT, or pipe one in")
    else:
        text = _decode_prompt(_read(stdin, _PROMPT + 1), "standard input")
    if not text.strip():
        raise click.UsageError("the PROMPT is empty")
    return text


class TurnInput:
    """Input that comes with the prompt: `data` for the session, `text` and pictures for the model."""

    def __init__(self, prompt: str, data: Sequence[str], attach: Sequence[str], *, stdin_is_data: bool) -> None:
        """`stdin_is_data`: True if the prompt did not come from standard input, so data may come from it."""
        files = [file for file in attach if file != _STDIN]
        self.data: dict[str, Path] | None = dict(check_paths(parse_named_paths([*data, *files]))) or None
        self._attached = check_paths(parse_named_paths(files))
        self._waits = _STDIN in attach
        if self._waits and not stdin_is_data:
            raise click.UsageError("standard input is the PROMPT; it cannot be attached too")
        self._stdin_is_data = stdin_is_data
        self._pictures: tuple[Path, ...] = ()
        self._piped: Path | None = None
        self.text = prompt

    def read_stdin(self, folder: Path) -> None:
        """Save piped data in `folder`, and add the attachments. Raises UsageError, PinfoldError."""
        stdin = self._wait_for_stdin() if self._stdin_is_data else None
        if stdin is None and not self._attached:
            return
        from pinfold.app.clients import collect_attachments, refuse_reserved_name, save_stdin

        self._piped = save_stdin(lambda size: _read(stdin, size), folder) if stdin else None
        if self._piped:
            refuse_reserved_name(self.data or ())
        more = collect_attachments(self._attached, self._piped)
        self.data = {**(self.data or {}), **more.data} or None
        self._pictures = more.pictures
        self.text = "\n\n".join(filter(None, (self.text, more.words)))

    def refuse_with(self, option: str) -> None:
        """Refuse input that several sessions cannot share. Raises UsageError."""
        if self._pictures:
            raise click.UsageError(f"{option} cannot show pictures, such as {self._pictures[0].name}; leave one out")
        if self._piped:
            raise click.UsageError(f"{option} takes no standard input; write it to a file and give it with --data")

    def _wait_for_stdin(self) -> BinaryIO | None:
        """Return standard input if data comes from it."""
        stdin = _get_piped_stdin()
        if self._waits and stdin is None:
            raise click.UsageError("there is no standard input to attach: pipe something in")
        if self._waits or stdin is None or select.select([stdin], [], [], FIRST_BYTE_S)[0]:
            return stdin
        say(
            f"nothing came on standard input within {FIRST_BYTE_S:g} s, continuing without it "
            "(--attach - waits for it, </dev/null skips this)"
        )
        return None

    def wrap_opening(self, opening: Opening, folder: Path | None, images: list[events.Image]) -> Opening:
        """Wrap `opening` so that it also stores the pictures in the session and fills `images` with them."""
        if not self._pictures:
            return opening

        @asynccontextmanager
        async def with_pictures() -> AsyncGenerator[Link]:
            from pinfold.app.clients import store_pictures

            async with opening() as link:
                images[:] = store_pictures(link, folder, self._pictures)
                yield link

        return with_pictures


def _get_piped_stdin() -> BinaryIO | None:
    """Return standard input, unless it is a terminal or closed."""
    return None if is_closed(sys.stdin) or sys.stdin.isatty() else sys.stdin.buffer


def _read(stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise click.UsageError(f"standard input cannot be read: {error.strerror}") from error


def _decode_prompt(data: bytes, where: str) -> str:
    if len(data) > _PROMPT:
        raise click.UsageError(
            f"{where} is too long for a prompt, the limit is {_PROMPT >> 20} MB; "
            "say in a PROMPT what to do, and give the rest with --data or on standard input"
        )
    return data.decode("utf-8", "replace")


class JsonLines:
    """Prints every durable event as a line on stdout, and nothing else there."""

    spinner: Spinner | None = None

    def show(self, item: Entry | Delta) -> None:
        if isinstance(item, Entry):
            sys.stdout.write(events.entry_line(item) + "\n")
            sys.stdout.flush()


class Plain:
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.spinner = Spinner() if not quiet and can_be_redrawn(sys.stderr) else None

    def show(self, item: Entry | Delta) -> None:
        if not isinstance(item, Entry):
            return
        if self.spinner:
            self.spinner.take(item)
            self.spinner.clear()
        match item.event:
            case events.TurnEnded(text=text):
                self.answer(text)
            case events.TurnFailed(error=error):
                say(error)
            case events.Noticed() | events.SessionOpened():
                show_notice(item)
            case events.ModelFailed(error=error, retry_in_s=wait_s) if wait_s is not None:
                say(f"the model failed ({error}); trying again in {wait_s:.1f} s")
            case event if not self._quiet:
                _show_work(event)
            case _:
                pass

    @staticmethod
    def answer(text: str) -> None:
        """Print the answer: made safe on a terminal, unchanged in a pipe."""
        click.echo(presentable(text) if sys.stdout.isatty() else text.encode("utf-8", "backslashreplace"))


def _show_work(event: Event) -> None:
    match event:
        case events.ActionProposed(action=events.RunCell(code=code)):
            said = f"> {_indent_text(code)}"
        case events.ActionProposed(action=events.CallTool(tool="agents.start")):
            return  # when it ends, a line is printed for each sub-agent
        case events.ActionProposed(action=events.CallTool(tool=tool, args=args)):
            said = f"> {tool} {cap_text(presentable(events.plain_json(args)), 200)}"
        case events.ActionDenied(reason=reason):
            said = f"  not run: {reason}"
        case ActionFinished(outcome=outcome, observation=observation, duration_s=took, variables=changed):
            more = f"; {changed_in_words(changed)}" if changed else ""
            if runs := runs_in(observation) if observation.startswith("[{") else []:
                observation = "\n".join(f"sub-agent {run['line']}" for run in runs)
            said = f"  {_indent_text(observation)}\n  [{outcome}, {took:.2f} s{more}]"
        case _:
            return
    click.echo(presentable(said), err=True)


def show_notice(item: Entry | Delta) -> None:
    """Print a notice, or what was lost when the session was reopened; nothing for other events."""
    match event_of(item):
        case events.Noticed(text=text):
            say(text)
        case events.SessionOpened(lost=lost) if lost:
            say(f"the session was reopened; lost: {', '.join(lost)}")
        case _:
            pass


def _indent_text(text: str) -> str:
    # Remove secrets first: a cut could leave half of one, which would not be recognised.
    return cap_text(presentable(text.rstrip("\n")), _SHOWN).replace("\n", "\n  ")


class Streams:
    """Prints the streams of one cell at a time."""

    spinner: Spinner | None = None
    cell: events.ActionId | None = None

    def show(self, item: Entry | Delta) -> None:
        match event_of(item):
            case events.OutputDelta(id=id_, stream=stream, text=text) if id_ == self.cell:
                write(sys.stderr if stream == "stderr" else sys.stdout, text)
            case events.Noticed() | events.SessionOpened():
                show_notice(item)
            case events.ApprovalDecided(by="nobody"):
                write(sys.stderr, f"pinfold: {_DENIED}\n")
            case ActionFinished(id=id_, value=value, error=error, outcome=outcome, notices=notices) if id_ == self.cell:
                for notice in notices:
                    write(sys.stderr, f"pinfold: {presentable(notice)}\n")
                if value is not None:
                    write(sys.stdout, f"{value}\n")
                if exit_code(error) is None and (error or outcome != "ok"):
                    # A cell that never ran has no output: the message is Pinfold's own.
                    whose = "pinfold: " if outcome == "not_run" else ""
                    write(sys.stderr, f"{whose}{(error or outcome).rstrip()}\n")
            case _:
                pass


def exit_code(error: str | None) -> int | None:
    """Return the code that a program passed to `sys.exit`, 0 by default; None if it did not call it."""
    found = re.search(r"(?:\A|\n)SystemExit(?:: (?:None|(?P<code>-?\d{1,9})))?\s*\Z", error or "")
    return None if found is None else int(found["code"] or 0) & 0xFF


def write(stream: TextIO, text: str) -> None:
    if stream.isatty():
        text = presentable(text)
    stream.buffer.write(text.encode("utf-8", "backslashreplace"))
    stream.flush()
