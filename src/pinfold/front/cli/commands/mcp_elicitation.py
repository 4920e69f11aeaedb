"""Answers questions that an MCP server asks the user, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import anyio.to_thread
import click

from pinfold.app.session.mcp import Field, InvalidAnswer, fields_of, is_yes
from pinfold.front.cli.turn_output import is_closed
from pinfold.text import presentable, presentable_line


class TerminalElicitation:
    """Declines if there is no terminal."""

    @property
    def _is_there(self) -> bool:
        return not is_closed(sys.stdin) and sys.stdin.isatty() and sys.stderr.isatty()

    async def elicit(self, server: str, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        fields = fields_of(schema)
        if not self._is_there or fields is None:
            return None
        click.echo(presentable(f"{server} asks: {message}"), err=True)
        filled: dict[str, Any] = {}
        for field in fields:
            found = await anyio.to_thread.run_sync(_field, field)
            if found is None:
                return None
            filled |= found
        if not fields and not is_yes(await anyio.to_thread.run_sync(_prompt, "yes or no")):
            return None
        return filled

    async def open_page(self, server: str, url: str, why: str) -> bool:
        """Print the address; never open it, so that the user sees first where it leads."""
        if not self._is_there:
            click.echo(
                presentable_line(f"{server} wants you to open a page ({why}), which needs a terminal: {url}"), err=True
            )
            return False
        click.echo(presentable(f"{why}: open this page in your browser\n  {url}"), err=True)
        return True


def _prompt(words: str) -> str:
    return click.prompt(presentable_line(words), default="", show_default=False, err=True)


def _field(field: Field) -> dict[str, Any] | None:
    """Empty if it was left out; None if a required answer is missing."""
    choices = f" [{', '.join(field.options)}]" if field.options else ""
    words = _prompt(f"{field.question}{choices}")
    if not words.strip():
        return None if field.is_required else {}
    try:
        return {field.name: field.value(words)}
    except InvalidAnswer as error:
        click.echo(presentable_line(str(error)), err=True)
        return _field(field)
