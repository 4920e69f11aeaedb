"""`pinfold skill`: instructions and functions that the agent can use, yours and those of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import click

from pinfold.app import ConfigError, current_folder
from pinfold.app.clients import check_skill, create_skill, promote_file
from pinfold.app.trust import (
    Skill,
    find_skill,
    find_skills,
    install_skill,
    read_skill_folder,
    remove_skill,
    trust_skill,
)
from pinfold.front.cli.terminal import confirm, show, show_rows, tell
from pinfold.front.flags import PATH
from pinfold.front.pages import skill_rows
from pinfold.text import exact

_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.group("skill")
def skill_command() -> None:
    """Manage skills: instructions and functions that the agent can use.

    Yours are kept with your configuration, a project's in .agents/skills. The agent sees only those that you trust.
    A change to any file of a skill ends the trust.
    """


@skill_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per skill.")
def list_command(as_json: bool) -> None:
    """List your skills and those of this folder."""
    found = find_skills(current_folder())
    show_rows(skill_rows(found), as_json=as_json, nothing="No skills. Make one: pinfold skill new NAME")


@skill_command.command("show")
@click.argument("name")
@click.argument("file", default="SKILL.md")
def show_command(name: str, file: str) -> None:
    """Show a skill, or one FILE of it."""
    skill = find_skill(name, current_folder())
    if file not in skill.files:
        raise ConfigError(f"{name} has no file {file!r}; it has {', '.join(skill.files) or 'none'}")
    _print(skill.files[file])
    tell(f"{name} is {skill.state}{f': {skill.problem}' if skill.problem else ''}; files: {', '.join(skill.files)}")


@skill_command.command("new")
@click.argument("name")
@click.option("--description", default="Say what it does and when to use it.", help="What it does and when to use it.")
@click.option("--here", is_flag=True, help="Make it in .agents/skills of this folder.")
def new_command(name: str, description: str, here: bool) -> None:
    """Make a skill for you to fill in."""
    folder = create_skill(name, description, here=here)
    trust = f"pinfold trust {current_folder()}" if here else f"pinfold skill trust {name}"
    tell(f"made {folder}; write its SKILL.md, then let the agent use it: {trust}")


@skill_command.command("add")
@click.argument("folder", type=PATH)
@_yes
def add_command(folder: Path, yes: bool) -> None:
    """Copy the skill in FOLDER to yours, and trust it."""
    skill = read_skill_folder(folder)
    if skill.state == "broken":
        raise ConfigError(f"{folder} is not a skill: {skill.problem}")
    _show_files(skill)
    confirm(f"Add {skill.name}, and let the agent follow it?", yes=yes)
    tell(f"added {install_skill(skill.name, skill.files)}")


@skill_command.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Delete one of your skills."""
    remove_skill(name)
    tell(f"{name} is deleted")


@skill_command.command("trust")
@click.argument("name")
@_yes
def trust_command(name: str, yes: bool) -> None:
    """Let the agent use a skill of yours, as its files are now."""
    skill = find_skill(name, current_folder())
    if skill.state == "trusted":
        tell(f"{name} is trusted")
        return
    if skill.place == "project":
        tell(f"{name} is trusted with its folder: pinfold trust {current_folder()}")
        return
    _show_files(skill)
    confirm(f"Let the agent follow {name}?", yes=yes)
    trust_skill(skill)
    tell(f"{name} is trusted until one of its files changes")


@skill_command.command("test")
@click.argument("name")
def test_command(name: str) -> int:
    """Run a skill's recorded calls, and its scripts with --help, in a fresh sandbox; exit with 1 if one fails."""
    skill = find_skill(name, current_folder())
    if skill.state != "trusted":
        raise ConfigError(
            f"{name} is {skill.state}; {skill.problem or f'review and trust it: pinfold skill trust {name}'}"
        )
    tested = anyio.run(check_skill, skill)
    for what, wrong in tested:
        show(f"{'fails' if wrong else 'ok   '}  {what}{f': {wrong}' if wrong else ''}")
    if not tested:
        tell(f"{name} has no recorded calls and no scripts to test")
    return 1 if any(wrong for _, wrong in tested) else 0


@skill_command.command("promote")
@click.argument("file", type=PATH)
@click.argument("function")
@click.option("--name", "tool", default="", help="Name of the tool. Default: the function's name.")
@click.option("--effects", type=click.Choice(["none", "files"]), default="none", help="What the function changes.")
@click.option(
    "--example", "examples", multiple=True, metavar="JSON", help="Arguments of a call to try; it must succeed."
)
@_yes
def promote_command(file: Path, function: str, yes: bool, **given: Any) -> None:
    """Keep FUNCTION of FILE as a tool. Pinfold extracts it, checks it, and tries it in a fresh sandbox, offline."""
    promotion = anyio.run(promote_file, file, function, given["tool"], given["effects"], given["examples"])
    _print(promotion.shows.encode())
    confirm(f"Keep {promotion.tool} as one of your tools?", yes=yes)
    tell(
        f"kept {install_skill(promotion.skill, promotion.files)}; the agent can call {promotion.tool} from its next session on"
    )


def _show_files(skill: Skill) -> None:
    for name, data in skill.files.items():
        show(f"--- {name}")
        _print(data)


def _print(data: bytes) -> None:
    click.echo(exact(data.decode("utf-8", "replace")).rstrip())
