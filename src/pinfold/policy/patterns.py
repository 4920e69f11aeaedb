"""What a yes for longer than once would allow: plain strings that can be shown, kept and taken back.

shell: git commit *        these words, then any others, as one command on its own
shell: make test           this very command
edit: src/*                files right in that folder
network: api.github.com:443
install: polars
tool: send_mail            any call of the tool
tool: mail.send of server 1a2b3c4d    as long as the server is the same program

A flow lets a session that has read private data and text of others send to one destination, and holds for that session:

flow: api.github.com:443
flow: mail.send of server 1a2b3c4d
flow: the package index
"""

from __future__ import annotations

import posixpath
import shlex
from pathlib import PurePosixPath

from pinfold.events import FLOW, Action, CallTool
from pinfold.policy.facts import Facts
from pinfold.policy.shell import Script, base_name, read_script

SHELL = "shell"


def script_of(action: Action) -> Script | None:
    """The command of a shell action, read."""
    if not isinstance(action, CallTool) or action.tool != SHELL:
        return None
    command = action.given.get("command")
    return read_script(command) if isinstance(command, str) else None


def pattern_of(action: Action, facts: Facts, script: Script | None) -> str:
    """The most narrow that is still of use; empty where there is none."""
    if not isinstance(action, CallTool):
        return ""
    if action.tool == SHELL:
        return _shell_pattern(script) if facts.reach == "workspace" else ""
    match facts.reach:
        case "workspace":
            folders = {_folder(path) for path in facts.target.split("\n")}
            return f"edit: {folders.pop()}/*" if len(folders) == 1 and "" not in folders else ""
        case "packages":
            return f"install: {facts.target}" if facts.target else ""
        case "network":
            return f"network: {facts.target}" if facts.target else ""
        case "outside":
            return f"tool: {action.tool}{f' of {facts.target}' if facts.target else ''}"
        case "nothing" | "files" | "protected" | "host":
            return ""


def flow_of(action: Action, facts: Facts) -> str:
    """Where what leaves goes to; empty where nobody can say."""
    if not isinstance(action, CallTool) or not facts.leaves:
        return ""
    match facts.reach:
        case "packages":
            return f"{FLOW}the package index"
        case "network":
            return f"{FLOW}{facts.target}" if facts.target else ""
        case "outside":
            return f"{FLOW}{action.tool}{f' of {facts.target}' if facts.target else ''}"
        case "nothing" | "files" | "workspace" | "protected" | "host":
            return ""


def covers(pattern: str, action: Action, facts: Facts, script: Script | None) -> bool:
    """Whether a pattern speaks of this action. It never does of one for which no pattern would be offered."""
    offered = pattern_of(action, facts, script)
    if not offered:
        return False
    if not pattern.startswith("shell: ") or script is None:
        return pattern == offered
    from pinfold.policy.lists import lists

    words = list(script.plain)
    try:
        wanted = shlex.split(pattern.removeprefix("shell: ").removesuffix(" *"))
    except ValueError:  # not one of ours
        return False
    if not pattern.endswith(" *"):
        return bool(wanted) and words == wanted
    # Only a pattern that is offered too: a stored string cannot be wider than one.
    return tuple(wanted) in lists().prefixes and words[: len(wanted)] == wanted


def _shell_pattern(script: Script | None) -> str:
    if script is None or not script.plain or script.dangerous:
        return ""
    from pinfold.policy.lists import lists, matches_any

    known = lists()
    words = script.plain
    name = base_name(words[0])
    for length in (3, 2, 1):
        if len(words) >= length and words[:length] in known.prefixes:
            return f"shell: {shlex.join(words[:length])} *"
    closed = known.never | known.shells | known.interpreters | known.remote | known.fetchers | known.wrappers.keys()
    if name in closed or "/" in name or matches_any(name, known.dangerous) or name in known.system:
        return ""
    if any("*" in word or "?" in word for word in words):
        return ""
    return f"shell: {shlex.join(words)}"


def _folder(path: str) -> str:
    """As it is shown; empty if it is no place in the workspace."""
    if not path or "\0" in path:
        return ""
    parts = PurePosixPath(path)
    if ".." in parts.parts:
        return ""
    folder = posixpath.dirname(posixpath.normpath(path))
    return folder or "."
