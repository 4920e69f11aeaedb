"""The input of a turn from the command line: the prompt, standard input, files."""

from __future__ import annotations

import select
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from pinfold.app import Link, Opening, check_paths, parse_named_paths
from pinfold.events import Image, Say, TurnId
from pinfold.front.cli.turn_output import is_closed

FIRST_BYTE_S = 3.0
"""How long to wait for piped data beside a prompt: many programs leave an open, empty pipe."""
_PROMPT = 1 << 20
_STDIN = "-"


def prompt_from(prompt: str | None, file: str | None) -> str:
    """The prompt from the argument, a file or standard input. Raises UsageError."""
    if prompt is not None and file is not None:
        raise click.UsageError("give either a PROMPT or -f FILE; a file to work on goes with --attach or --data")
    if file not in (None, _STDIN):
        text = _read_prompt_file(file)
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
    """What comes with the prompt: `data` for the session, `text` and pictures for the model."""

    def __init__(self, prompt: str, data: Sequence[str], attach: Sequence[str], *, beside: bool) -> None:
        """`beside`: the prompt did not come from standard input, so data may."""
        self.data: dict[str, Path] | None = dict(check_paths(parse_named_paths([*data, *_files(attach)]))) or None
        self._attached = check_paths(parse_named_paths(_files(attach)))
        self._prompt = prompt
        self._waits = _STDIN in attach
        if self._waits and not beside:
            raise click.UsageError("standard input is the PROMPT; it cannot be attached too")
        self._beside = beside
        self._pictures: tuple[Path, ...] = ()
        self._piped: Path | None = None
        self.text = prompt

    def read_stdin(self, folder: Path) -> None:
        """Save what is piped in to `folder`. Raises UsageError, PinfoldError."""
        stdin = self._wait_for_stdin() if self._beside else None
        if stdin is None and not self._attached:
            return
        from pinfold.app.clients import collect_attachments, refuse_reserved_name, save_stdin

        self._piped = save_stdin(lambda size: _read(stdin, size), folder) if stdin else None
        if self._piped:
            refuse_reserved_name(self.data or ())
        more = collect_attachments(self._attached, self._piped)
        self.data = {**(self.data or {}), **more.data} or None
        self._pictures = more.pictures
        self.text = "\n\n".join(filter(None, (self._prompt, more.words)))

    def build_command(self, turn: TurnId, images: tuple[Image, ...]) -> Say:
        return Say(turn=turn, text=self.text, images=images)

    def refuse_with(self, option: str) -> None:
        """Refuse input that several sessions cannot share. Raises UsageError."""
        if self._pictures:
            raise click.UsageError(f"{option} cannot show pictures, such as {self._pictures[0].name}; leave one out")
        if self._piped:
            raise click.UsageError(f"{option} takes no standard input; write it to a file and give it with --data")

    def _wait_for_stdin(self) -> BinaryIO | None:
        """Standard input, if data may come from it."""
        stdin = _get_piped_stdin()
        if self._waits:
            if stdin is None:
                raise click.UsageError("there is no standard input to attach: pipe something in")
            return stdin
        if stdin is None or select.select([stdin], [], [], FIRST_BYTE_S)[0]:
            return stdin
        click.echo(
            f"pinfold: nothing came on standard input within {FIRST_BYTE_S:g} s, continuing without it "
            "(--attach - waits for it, </dev/null skips this)",
            err=True,
        )
        return None

    def wrap_opening(self, opening: Opening, folder: Path | None, images: list[Image]) -> Opening:
        """Stores the pictures in the session when it opens, and fills `images` with them."""
        if not self._pictures:
            return opening

        @asynccontextmanager
        async def with_pictures() -> AsyncGenerator[Link]:
            from pinfold.app.clients import store_pictures

            async with opening() as link:
                images[:] = store_pictures(link, folder, self._pictures)
                yield link

        return with_pictures


def _files(attach: Sequence[str]) -> list[str]:
    return [file for file in attach if file != _STDIN]


def _get_piped_stdin() -> BinaryIO | None:
    """Standard input, unless it is a terminal or closed."""
    if is_closed(sys.stdin) or sys.stdin.isatty():
        return None
    return sys.stdin.buffer


def _read(stream: Any, size: int) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise click.UsageError(f"standard input cannot be read: {error.strerror}") from error


def _read_prompt_file(file: str | None) -> str:
    try:
        with Path(file or "").open("rb") as opened:
            return _decode_prompt(opened.read(_PROMPT + 1), str(file))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error


def _decode_prompt(data: bytes, where: str) -> str:
    if len(data) > _PROMPT:
        raise click.UsageError(
            f"{where} is too long for a prompt, the limit is {_PROMPT >> 20} MB; "
            "say in a PROMPT what to do, and give the rest with --data or on standard input"
        )
    return data.decode("utf-8", "replace")
