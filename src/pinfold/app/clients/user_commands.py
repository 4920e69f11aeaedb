"""User-defined commands: a file with a prompt, and placeholders for arguments and files.

Commands of a workspace are used only if the user trusts it, like everything in `.agents`. Files that a command includes
are read from the workspace only, never through a link that leads out of it, and never if they are secrets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import read_limited
from pinfold.app.storage.exports.md import fence_code
from pinfold.app.trust.project_files import UnsafeFile, read_below, read_project_files
from pinfold.app.trust.project_formats import FOLDER, UserCommand, parse_command
from pinfold.app.trust.workspace_trust import is_trusted

INCLUDED = 256 << 10
"""Maximum characters of all files that a command includes."""
_FILE_BYTES = 64 << 10
_MOST = 200
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}"
_COMMAND_FILE = re.compile(rf"{re.escape(FOLDER)}/({_NAME})\.md")
_PLACES = re.compile(r"\$ARGUMENTS\b|\$([1-9])(?![0-9])|(?<![^\s(\[\"'`])@([^\s()\[\]\"'`<>]+)")


class UserCommands(Struct, frozen=True, kw_only=True):
    commands: Mapping[str, UserCommand] = {}
    untrusted: tuple[str, ...] = ()
    """Names of workspace commands that are not used, because the workspace is not trusted."""
    faults: tuple[str, ...] = ()


def load_user_commands(workspace: Path) -> UserCommands:
    """Load the user's commands and the workspace's, which take precedence by name. Raises ConfigError."""
    faults: list[str] = []
    found = {one.name: one for one in _load_home_commands(faults)}
    here = read_project_files(workspace)
    files = {match[1]: file.data for file in here.files if (match := _COMMAND_FILE.fullmatch(file.name))}
    if files and not is_trusted(here):
        return UserCommands(commands=found, untrusted=tuple(sorted(files)), faults=tuple(faults))
    for name, data in files.items():
        found[name] = parse_command(name, data, f"{FOLDER} of this folder")
    return UserCommands(commands=dict(sorted(found.items())), faults=tuple(faults))


def _load_home_commands(faults: list[str]) -> list[UserCommand]:
    try:
        folder = Path.home() / FOLDER
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".md" and re.fullmatch(_NAME, path.stem))
    except (OSError, RuntimeError):
        return []
    if len(paths) > _MOST:
        faults.append(f"{folder} holds more than {_MOST} commands; the rest is left out")
    commands: list[UserCommand] = []
    for path in paths[:_MOST]:
        try:
            if path.is_file():
                too_large = f"is larger than {_FILE_BYTES >> 10} kB, too large for a command"
                data = read_limited(path, _FILE_BYTES, too_large)
                commands.append(parse_command(path.stem, data, f"~/{FOLDER}"))
        except ConfigError as error:
            faults.append(str(error))
        except OSError as error:  # a link into a folder we may not read
            faults.append(f"{path} cannot be read: {error.strerror}")
    return commands


def fill_command(command: UserCommand, arguments: str, workspace: Path) -> str:
    """Return the prompt with each placeholder filled once; inserted text is not expanded again. Raises ConfigError."""
    if not command.text:
        raise ConfigError(f"/{command.name} is empty; write into its file what the model should do")
    try:
        words = shlex.split(arguments)
    except ValueError:  # an unbalanced quote, such as an apostrophe
        words = arguments.split()
    used = False
    files: dict[str, str] = {}

    def fill(place: re.Match[str]) -> str:
        nonlocal used
        if place[2]:
            return _include_file(place, files, workspace)
        used = True
        if place[1]:
            at = int(place[1]) - 1
            return words[at] if at < len(words) else ""
        return arguments

    text = _PLACES.sub(fill, command.text)
    if arguments and not used:
        text = f"{text}\n\n{arguments}"
    return "\n\n".join((text, *files.values()))


def _include_file(place: re.Match[str], files: dict[str, str], workspace: Path) -> str:
    """Return the text that replaces `@path`, and add the file to `files`, which go at the end of the prompt."""
    whole, path = place[0], place[2].rstrip(".,;:!?")
    rest = place[2][len(path) :]
    try:
        data = read_below(workspace, path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return whole  # not a file: a decorator, a user name, a folder
    except (UnsafeFile, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"@{path} cannot be included: {why}") from error
    files[path] = f"{path}:\n{fence_code(data.decode('utf-8', 'replace'))}"
    if sum(map(len, files.values())) > INCLUDED:
        raise ConfigError(f"the files it names are more than {INCLUDED >> 10} kB together; name fewer")
    return path + rest
