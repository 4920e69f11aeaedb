"""The judge's inputs: facts about an action, the patterns granted by "session" and "always", the user's rules. Pure.

Facts come from the app, except for shell commands. Patterns are plain strings that can be shown, stored and revoked:

shell: git commit *        a single command that begins with these words
shell: make test           exactly this command
edit: src/*                files directly in that folder
network: api.github.com:443
install: polars
tool: send_mail            any call of the tool
tool: mail.send of server 1a2b3c4d    as long as the server is the same program

A flow lets a session that has read private data and outside text send to one destination, for that session only:

flow: api.github.com:443
flow: mail.send of server 1a2b3c4d
flow: the package index

The user's rules are TOML, which the app reads:

[[rule]]
name = "no pushing"
command = ["git", "push"]        # how a simple command begins; or a glob over its words, "git push *"
verdict = "deny"                 # allow, ask or deny
reason = "I push myself"
match = ["git push origin main", "cd x && git -C . push"]
not_match = ["git pull"]

[[rule]]
name = "mail to the team"
tool = "send_mail"               # a glob over tool names; shell if there is a command
args = { to = "*@example.org" }  # globs over arguments
verdict = "allow"
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from pinfold.events import FLOW, Action, CallTool, Effect, Reach, convert
from pinfold.policy.shell import Command, Script, base_name, read_script


class Facts(Struct, frozen=True, kw_only=True):
    effect: Effect = "once"
    reach: Reach = "outside"
    target: str = ""
    """What the action reaches, where that matters: a path (several: one per line), `host:port`, a package."""
    listed: bool = False
    """The target is a host on the user's allow-list."""
    handed: bool = False
    """The user passed the tool to this session directly."""
    leaves: bool = False
    """The action can send data that the session chooses to another machine."""
    may_leave: bool = False
    """The user allowed that destination for this run on the command line."""


class Taint(Struct, frozen=True, kw_only=True):
    """What a session has read so far; an undo does not reset it."""

    private: bool = False
    untrusted: bool = False

    @property
    def is_full(self) -> bool:
        """True if the session read both, so outside text may be trying to send private data out."""
        return self.private and self.untrusted


def shell_facts(command: str, *, where: Literal["sandbox", "host"] = "sandbox") -> tuple[Facts, Script]:
    script = read_script(command)
    if where == "host":
        return Facts(effect="once", reach="host"), script
    if script.reads_only:
        return Facts(effect="pure", reach="files"), script
    # Text that was not parsed may do anything, also outside the workspace.
    return Facts(effect="once", reach="outside" if script.dangerous or script.unread else "workspace"), script


SHELL = "shell"


def script_of(action: Action) -> Script | None:
    """Return the parsed command of a shell action, or None."""
    if not isinstance(action, CallTool) or action.tool != SHELL:
        return None
    command = action.given.get("command")
    return read_script(command) if isinstance(command, str) else None


def pattern_of(action: Action, facts: Facts, script: Script | None) -> str:
    """Return the narrowest useful grant pattern; empty if there is none."""
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
    """Return the flow pattern for where an action sends data; empty if it sends none, or the destination is unknown."""
    if not isinstance(action, CallTool) or not facts.leaves:
        return ""
    tool = _tool_of_server(action, facts)
    place = {"packages": "the package index", "network": facts.target, "outside": tool}.get(facts.reach)
    return f"{FLOW}{place}" if place else ""


def _tool_of_server(action: CallTool, facts: Facts) -> str:
    return f"{action.tool} of {facts.target}" if facts.target else action.tool


def covers(pattern: str, action: Action, facts: Facts, script: Script | None) -> bool:
    """Return whether a pattern covers this action: never one for which no pattern would be offered."""
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
    # Accept only prefixes that are ever offered: a stored pattern must not allow more.
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
    """Return a path's folder as shown; empty if it is not in the workspace."""
    if not path or "\0" in path or ".." in path.split("/"):
        return ""
    return posixpath.dirname(posixpath.normpath(path)) or "."


Answer: TypeAlias = Literal["allow", "ask", "deny"]


class RuleError(ValueError):
    """The rules file is wrong; the message says where and how."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    verdict: Answer
    tool: str = ""
    command: tuple[str, ...] | str = ()
    args: Mapping[str, str] = {}
    reason: str = ""
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    @property
    def is_for_shell(self) -> bool:
        return bool(self.command)

    def matches(self, command: Command) -> bool:
        words = [word.shown if word.text is None else word.text for word in command.words]
        if not words or command.words[0].text is None:
            return False
        words[0] = base_name(words[0])
        from pinfold.policy.lists import skip_options

        # `git -C x push` is a `git push` too.
        plain = [words[0], *words[1 + skip_options(words[0], words[1:]) :]]
        return self._fits(words) or self._fits(plain)

    def _fits(self, words: Sequence[str]) -> bool:
        if isinstance(self.command, str):
            joined = " ".join(words)
            return fnmatchcase(joined, self.command) or fnmatchcase(f"{joined} ", self.command)
        return tuple(words[: len(self.command)]) == self.command

    def matches_call(self, action: CallTool) -> bool:
        if self.is_for_shell or not fnmatchcase(action.tool, self.tool):
            return False
        if action.tool == SHELL and self.verdict == "allow":
            return False  # commands are allowed one by one, never by the tool's name
        given = action.given
        return all(key in given and fnmatchcase(str(given[key]), glob) for key, glob in self.args.items())


class Rules(Struct, frozen=True):
    rules: tuple[Rule, ...] = ()

    def say(self, action: Action, script: Script | None) -> Rule | None:
        """Return the strictest rule on an action; an allow rule only if the whole action is covered."""
        if not isinstance(action, CallTool):
            return None
        found = [rule for rule in self.rules if rule.matches_call(action)]
        if script is not None:
            found += self._on_script(script)
        return min(found, key=lambda rule: ("deny", "ask", "allow").index(rule.verdict), default=None)

    def _on_script(self, script: Script) -> list[Rule]:
        mine = [rule for rule in self.rules if rule.is_for_shell]
        if not mine:
            return []
        against = [rule for rule in mine if rule.verdict != "allow"]
        found = [rule for rule in against for command in script.commands if rule.matches(command)]
        if script.unread and (denying := [rule for rule in against if rule.verdict == "deny"]):
            # An unreadable command must not turn a deny into a question.
            found.append(Rule(name=denying[0].name, verdict="deny", reason=_cannot_tell(denying[0])))
        unnamed = script.unparsed or not all(command.name for command in script.commands)
        if not found and against and unnamed:
            # The name of one of the commands is unknown, so a rule may be against it.
            return [Rule(name=against[0].name, verdict="ask", reason=_cannot_tell(against[0]))]
        if found or script.unparsed or script.besides or script.dangerous:
            return found
        allowing = [rule for rule in mine if rule.verdict == "allow"]
        # A command that a rule allows is not held to reading, so one that is only expected to read needs a rule too.
        needed = [command for command in script.commands if not command.harmless]
        by = [next((rule for rule in allowing if rule.matches(command)), None) for command in needed]
        return [rule for rule in by if rule] if needed and all(by) else []


NO_RULES = Rules()


def load_rules(text: str) -> Rules:
    """Parse the user's rules. Raises RuleError for bad TOML, unknown keys, or an example that does not hold."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"not valid TOML: {error}") from error
    if unknown := sorted(table.keys() - {"rule"}):
        raise RuleError(f"unknown key {unknown[0]!r}; every rule begins with [[rule]]")
    rules: list[Rule] = []
    listed: object = table.get("rule", [])
    if not isinstance(listed, list):
        raise RuleError("every rule begins with [[rule]], in double brackets")
    for number, given in enumerate(cast(list[object], listed), 1):
        try:
            rule = convert(given, Rule)
        except msgspec.ValidationError as error:
            raise RuleError(f"rule {number}: {error}") from error
        _check(rule)
        rules.append(rule)
    return Rules(tuple(rules))


def _check(rule: Rule) -> None:
    if rule.is_for_shell == bool(rule.tool) and rule.tool != SHELL:
        raise RuleError(f"rule {rule.name!r}: give it either a command or a tool")
    if rule.tool == SHELL and not rule.is_for_shell and rule.verdict == "allow":
        raise RuleError(f"rule {rule.name!r}: to allow shell commands, say which: command = [...]")
    if (rule.match or rule.not_match) and not rule.is_for_shell:
        raise RuleError(f"rule {rule.name!r}: match and not_match are commands; use them with command")
    for example in (*rule.match, *rule.not_match):
        holds = any(rule.matches(command) for command in read_script(example).commands)
        if not holds and example in rule.match:
            raise RuleError(f"rule {rule.name!r}: it does not match its example {example!r}")
        if holds and example in rule.not_match:
            raise RuleError(f"rule {rule.name!r}: it matches {example!r}, which it should not")


def _cannot_tell(rule: Rule) -> str:
    shown = rule.command if isinstance(rule.command, str) else shlex.join(rule.command)
    return f"it is not certain whether this runs {shown!r}, which your rule {rule.name!r} is about"
