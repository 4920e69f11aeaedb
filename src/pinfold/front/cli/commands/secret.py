"""`pinfold secret`: values that are used on the host, by name, for the hosts they are for. None is ever printed."""

from __future__ import annotations

import sys

import click

from pinfold.app import ConfigError
from pinfold.app.trust import SecretListing, Secrets, host_pattern
from pinfold.events import plain_json
from pinfold.front.cli.turn_output import is_closed
from pinfold.text import presentable_line

_LONGEST = 64 << 10


@click.group("secret")
def secret_command() -> None:
    """Store secrets for tools and requests: used outside the sandbox, by name, for listed hosts only.

    No secret ever enters a session, a prompt or a log.
    """


@secret_command.command("set")
@click.argument("name")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Where it may be sent, such as *.example.org.")
@click.option("--header", default="", metavar="FORM", help="Header that `fetch` sends: 'Authorization: Bearer {}'.")
def set_(name: str, hosts: tuple[str, ...], header: str) -> None:
    """Store a secret. You are asked for its value, or it is read from standard input.

    Without --host a known secret keeps its hosts, and a new one can be sent nowhere.
    """
    for host in hosts:
        host_pattern(host)
    kept = Secrets().set(name, _value(name), hosts, header)
    where = "the keyring" if kept.where == "keyring" else Secrets().path
    click.echo(presentable_line(f"{kept.name} is stored in {where}, for {_hosts(kept)}"), err=True)


@secret_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per secret.")
def list_(as_json: bool) -> None:
    """List names, hosts and where each secret is stored; never a value."""
    for one in Secrets().all():
        if as_json:
            fields = {"name": one.name, "hosts": list(one.hosts), "where": one.where, "header": one.header}
            click.echo(plain_json(fields))
        else:
            click.echo(presentable_line(f"{one.name:<24} {one.where:<8} {_hosts(one)}"))


@secret_command.command("rm")
@click.argument("name")
def rm(name: str) -> None:
    """Delete a secret."""
    Secrets().remove(name)
    click.echo(presentable_line(f"{name} is deleted"), err=True)


def _hosts(one: SecretListing) -> str:
    return ", ".join(one.hosts) or f"no host yet (pinfold secret set {one.name} --host HOST)"


def _value(name: str) -> str:
    if is_closed(sys.stdin):
        raise click.UsageError("standard input is closed")
    if sys.stdin.isatty():
        return click.prompt(presentable_line(name), hide_input=True, err=True)
    data = sys.stdin.buffer.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise ConfigError(f"the value of {name} is longer than {_LONGEST >> 10} kB")
    try:
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the value of {name} is not UTF-8 text; encode it first") from error
