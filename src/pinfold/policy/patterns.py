"""What "session" and "always" allow: plain strings that can be shown, stored and revoked.

shell: git commit *        these words, then any others, as one command on its own
shell: make test           this very command
edit: src/*                files right in that folder
network: api.github.com:443
install: polars
tool: send_mail            any call of the tool
tool: mail.send of server 1a2b3c4d    as long as the server is the same program

A flow lets a session that has read private data and outside text send to one destination, for that session only:

flow: api.github.com:443
flow: mail.send of server 1a2b3c4d
flow: the package index
"""

from __future__ import annotations

import posixpath
import shlex

from pinfold.events import FLOW, Action, CallTool
from pinfold.policy.facts import Facts
from pinfold.policy.shell import Script, base_name, read_script

SHELL = "shell"


def script_of(action: Action) -> Script | None:
    """The parsed command of a shell action."""
    if not isinstance(action, CallTool) or action.tool != SHELL:
        return None
    command = action.given.get("command")
    return read_script(command) if isinstance(command, str) else None


def pattern_of(action: Action, facts: Facts, script: Script | None) -> str:
    """The narrowest useful pattern; empty if there is none."""
    if not isinstance(action, CallTool):
        return ""
    if action.tool == SHELL:
        return _shell_pattern(script) if facts.reach == "workspace" else ""
    if facts.reach == "workspace":
        folders = {_folder(path) for path in facts.target.split("\n")}
        return f"edit: {folders.pop()}/*" if len(folders) == 1 and "" not in folders else ""
    if facts.reach == "outside":
        return f"tool: {_tool_of_server(action, facts)}"
    kind = {"packages": "install", "network": "network"}.get(facts.reach)
    return f"{kind}: {facts.target}" if kind and facts.target else ""


def flow_of(action: Action, facts: Facts) -> str:
    """Where sent data goes; empty if that is unknown."""
    if not isinstance(action, CallTool) or not facts.leaves:
        return ""
    tool = _tool_of_server(action, facts)
    place = {"packages": "the package index", "network": facts.target, "outside": tool}.get(facts.reach)
    return f"{FLOW}{place}" if place else ""


def _tool_of_server(action: CallTool, facts: Facts) -> str:
    return f"{action.tool} of {facts.target}" if facts.target else action.tool


def covers(pattern: str, action: Action, facts: Facts, script: Script | None) -> bool:
    """True if a pattern covers this action. It never covers one for which no pattern would be offered."""
    offered = pattern_of(action, facts, script)
    if not offered:
        return False
    if not pattern.startswith("shell: ") or script is None:
        return pattern == offered
    from pinfold.policy.lists import lists

    words = list(script.plain)
    try:
        wanted = shlex.split(pattern.removeprefix("shell: ").removesuffix(" *"))
    except ValueError:  # not a pattern that was offered
        return False
    if not pattern.endswith(" *"):
        return bool(wanted) and words == wanted
    # Only a pattern that is offered too: a stored string cannot allow more.
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
    """As it is shown; empty if it is not in the workspace."""
    if not path or "\0" in path or ".." in path.split("/"):
        return ""
    return posixpath.dirname(posixpath.normpath(path)) or "."
