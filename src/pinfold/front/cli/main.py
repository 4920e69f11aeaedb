"""The `pinfold` command. Loads nothing heavier than click until a command is chosen."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

from pinfold import __version__

_NEW_OBJECTS = 10_000
"""Number of new objects after which the garbage collector runs."""
_OUTPUT_FAILED = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO)
_COMMANDS = {
    "chat": ("chat", "Chat with the agent. `pinfold` alone does the same."),
    "run": ("run", "Do one task and print the answer; never asks."),
    "exec": ("exec", "Run Python in a sandboxed session, without a model."),
    "batch": ("batch", "Do the tasks in a file, several at a time."),
    "queue": ("queue", "Queue tasks for later: add, list, run, cancel."),
    "attach": ("queue", "Follow what a session is doing, until its turn ends."),
    "memory": ("memory", "Manage the agent's notes: list, search, show, edit, forget, export."),
    "sessions": ("sessions", "List, show, rename and remove sessions."),
    "checkpoint": ("rewind", "Make git checkpoints of a session: on, off, list, restore."),
    "resume": ("run", "Continue a session."),
    "undo": ("rewind", "Undo what the last cell did to variables and files."),
    "redo": ("rewind", "Reverse the last undo."),
    "fork": ("rewind", "Start a second session from where one is."),
    "export": ("sessions", "Write a session to a file."),
    "import": ("sessions", "Import a session from a file."),
    "serve": ("servers", "Serve the web page and an API, for browsers and programs."),
    "acp": ("chat", "Serve the agent to an editor (Zed, JetBrains, Neovim, Emacs)."),
    "mcp-server": ("servers", "Serve the sandbox, and the agent, to MCP clients."),
    "up": ("servers", "Keep sandboxes warm and sessions alive for other commands."),
    "doctor": ("diagnostics", "Check what works here, and how to fix the rest."),
    "cleanup": ("diagnostics", "Remove what a killed Pinfold left behind."),
    "map": ("diagnostics", "Draw how this installation is connected."),
    "model": ("installation", "List, download and serve local models."),
    "env": ("installation", "Build and show the Python environment cells run in."),
    "extras": ("installation", "List and install optional parts of Pinfold."),
    "skill": ("skill", "Manage skills: instructions and functions for the agent."),
    "trust": ("trust", "Let the agent follow a folder's instructions."),
    "mcp": ("mcp", "Manage MCP servers: list, add, remove, trust, call."),
    "secret": ("trust", "Store secrets for tools and requests."),
    "policy": ("trust", "Explain what the policy allows, asks or denies."),
    "demo": ("demo", "See what Pinfold does: a recorded model, a real sandbox."),
    "bench": ("diagnostics", "Run a benchmark (in a checkout of Pinfold)."),
    "config": ("configuration", "Show and change the configuration."),
    "completion": ("completion", "Print the completion script for bash, zsh or fish."),
}
"""Module and line of help of each command."""


class _Lazy(click.Group):
    """Imports a command's module only when the command runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, insert `chat`, which has its own flags."""
        at = 0  # after the flags that every command has
        while at < len(args) and (args[at] in ("--debug", "--log-level") or args[at].startswith("--log-level=")):
            at += 2 if args[at] == "--log-level" else 1
        if ctx.resilient_parsing and at == len(args):
            return super().parse_args(ctx, args)
        first = args[at] if at < len(args) else "--"
        if first.startswith("-") and first not in ("--help", "-h", "--version"):
            args = [*args[:at], "chat", *args[at:]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"pinfold.front.cli.commands.{_COMMANDS[cmd_name][0]}")
        # Everything loaded so far stays loaded, so the garbage collector need not scan it.
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS)
        gc.enable()
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        if not ctx.resilient_parsing:
            return command
        from pinfold.front.cli.commands.completion import with_completers

        return with_completers(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete command names without loading them, and options of the chat."""
        from click.shell_completion import CompletionItem

        found = [(name, words) for name, (_, words) in _COMMANDS.items() if name.startswith(incomplete)]
        items = [CompletionItem(name, help=words) for name, words in found]
        items += click.Command.shell_complete(self, ctx, incomplete)
        chat = self.get_command(ctx, "chat") if incomplete.startswith("-") else None
        return [*items, *chat.shell_complete(ctx, incomplete)] if chat else items

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, _COMMANDS, n=1)
            words = f"Did you mean {near[0]!r}?" if near else 'To run a task: pinfold run "WORDS"'
            ctx.fail(f"there is no command {name!r}. {words}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="pinfold %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Level of the operator log."
)
@click.pass_context
def cli(ctx: click.Context, debug: bool, log_level: str | None) -> None:
    """An agent that works by writing Python, in a persistent session on your own machine.

    Without a command it starts the chat, with the flags of `pinfold chat --help`.
    """
    if debug:
        os.environ["PINFOLD_DEBUG"] = "1"
    if ctx.invoked_subcommand in ("chat", "acp"):
        ctx.obj = log_level  # these two show a prompt, or answer an editor, before they load more
        return
    from pinfold.app import start_operator_log

    start_operator_log(log_level)


def run_command_line(args: list[str] | None = None) -> None:
    """Run a command; tracebacks only with --debug. Exit codes: 0, 1 failed, 2 usage, 75 later, 130 interrupted."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by a shell's `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
    if "_PINFOLD_COMPLETE" in os.environ:
        import_module("pinfold.front.cli.commands.completion")  # it registers a completion class
    else:
        from pinfold.front.signals import interrupt_on_stop_signals  # completion loads nothing it does not need

        interrupt_on_stop_signals()
    try:
        code = cli.main(args=args, prog_name="pinfold", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        code = error.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:  # noqa: BLE001 - the last handler there is
        code = 130 if _was_interrupted(error) else _report(error)
    code = code if isinstance(code, int) else 0
    sys.exit(_print_closing_notices() or code)


def _print_closing_notices() -> int:
    """Print what a session reported while closing; 1 if the workspace is not as promised."""
    if "pinfold.app.session.protected_files" not in sys.modules:
        return 0
    from pinfold.app import pop_closing_notices

    lines, is_broken = pop_closing_notices()
    for line in lines:
        _complain(line)
    return 1 if is_broken else 0


def _was_interrupted(error: BaseException) -> bool:
    """True if Ctrl-C caused the error; during an import it only becomes the cause of another error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _report(error: Exception) -> int:
    if os.environ.get("PINFOLD_DEBUG"):
        import traceback

        _write("".join(traceback.format_exception(error)))
    from pinfold.events import PinfoldError

    if isinstance(error, PinfoldError):
        _complain(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_FAILED:
        # Pinfold's own output failed: its reader is gone, or the disk is full.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno != errno.EPIPE:
            _complain(f"cannot write the output: {error.strerror}")
        return 1
    import logging

    log = logging.getLogger("pinfold")
    if not log.handlers:  # the error came before the log was started
        from pinfold.app import start_operator_log

        start_operator_log()
    log.error("unexpected", exc_info=error)
    _complain(f"unexpected error, please report it: {type(error).__name__}: {error} (--debug shows where)")
    return 1


def _show(error: click.ClickException) -> None:
    """Print the error in one line; for a group without a subcommand, print its help."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # not in click 8.1
        _write(f"{error.format_message()}\n")
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    help_ = f" (see {context.command_path} --help)" if context else ""
    _complain(" ".join(error.format_message().split()).rstrip(".") + help_)


def _complain(text: str) -> None:
    _write(f"pinfold: {text}\n")


def _write(text: str) -> None:
    from pinfold.text import presentable

    with contextlib.suppress(OSError):
        click.echo(presentable(text), err=True, nl=False)
