"""The `pinfold` command. Loads click and nothing else of weight until a command is chosen."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from pinfold import __version__

_COMMANDS = {
    "run": "One task, one answer; never prompts.",
    "exec": "Run Python in a session, without any model.",
    "sessions": "List, show, rename and remove sessions.",
    "resume": "Go on with a session.",
    "export": "Write a session to a file.",
    "import": "Bring a session in from a file.",
    "config": "Show the configuration and where it comes from.",
}
_MODULES = {
    "run": "running",
    "resume": "running",
    "exec": "executing",
    "sessions": "sessions",
    "export": "carrying",
    "import": "carrying",
    "config": "configuration",
}


class _Lazy(click.Group):
    """Imports a command's module only to run it; the help page needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"pinfold.front.cli.{_MODULES[cmd_name]}")
        return getattr(module, f"{cmd_name}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and name not in _MODULES and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, _COMMANDS, n=1)
            ctx.fail(f"there is no command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="pinfold %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="How much goes to the operator log.",
)
def cli(debug: bool, log_level: str | None) -> None:
    """An agent that works by writing Python, in a persistent session on your own machine."""
    os.environ["PINFOLD_DEBUG"] = "1" if debug else ""
    if log_level:
        os.environ["PINFOLD_LOG_LEVEL"] = log_level


def run_command_line(args: list[str] | None = None) -> None:
    """Never a traceback for the user, unless asked for. Exit codes: 0, 1 failed, 2 usage, 75 later, 130 interrupted."""
    try:
        code = cli.main(args=args, prog_name="pinfold", standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # Whoever read our output has gone; a second complaint at exit would help nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:  # noqa: BLE001 - the last handler there is
        code = _report(error)
    sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception) -> int:
    if os.environ.get("PINFOLD_DEBUG"):
        import traceback

        traceback.print_exception(error)
    from pinfold.events import PinfoldError
    from pinfold.text import printable, redacted

    if isinstance(error, PinfoldError):
        click.echo(f"pinfold: {printable(redacted(str(error)))}", err=True)
        return error.exit_code
    import logging

    logging.getLogger("pinfold").error("unexpected", exc_info=error)
    what = printable(redacted(f"{type(error).__name__}: {error}"))
    click.echo(f"pinfold: unexpected error, please report it: {what} (--debug shows where)", err=True)
    return 1
