"""The user's own rules, in TOML. Pure: the app reads the file.

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

import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from pinfold.events import Action, CallTool, convert
from pinfold.policy.patterns import SHELL
from pinfold.policy.shell import Command, Script, base_name, read_script

Says: TypeAlias = Literal["allow", "ask", "deny"]


class RuleError(ValueError):
    """The rules file is wrong; the message says where and how."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    verdict: Says
    tool: str = ""
    command: tuple[str, ...] | str = ()
    args: Mapping[str, str] = {}
    reason: str = ""
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    @property
    def is_for_shell(self) -> bool:
        return bool(self.command)

    def speaks_of(self, command: Command) -> bool:
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

    def speaks_of_call(self, action: CallTool) -> bool:
        if self.is_for_shell or not fnmatchcase(action.tool, self.tool):
            return False
        if action.tool == SHELL and self.verdict == "allow":
            return False  # commands are allowed one by one, never by the tool's name
        given = action.given
        return all(key in given and fnmatchcase(str(given[key]), glob) for key, glob in self.args.items())


class Rules(Struct, frozen=True):
    rules: tuple[Rule, ...] = ()

    def say(self, action: Action, script: Script | None) -> Rule | None:
        """The strictest rule on an action; an allow only if all of it is covered."""
        if not isinstance(action, CallTool):
            return None
        found = [rule for rule in self.rules if rule.speaks_of_call(action)]
        if script is not None:
            found += self._on_script(script)
        return min(found, key=lambda rule: ("deny", "ask", "allow").index(rule.verdict), default=None)

    def _on_script(self, script: Script) -> list[Rule]:
        mine = [rule for rule in self.rules if rule.is_for_shell]
        if not mine:
            return []
        against = [rule for rule in mine if rule.verdict != "allow"]
        found = [rule for rule in against for command in script.commands if rule.speaks_of(command)]
        if script.unread and (denying := [rule for rule in against if rule.verdict == "deny"]):
            # An unreadable command must not turn a deny into a question.
            found.append(Rule(name=denying[0].name, verdict="deny", reason=_cannot_tell(denying[0])))
        unnamed = script.unparsed or not all(command.name for command in script.commands)
        if not found and against and unnamed:
            # Something runs whose name is unknown, so a rule may be against it.
            return [Rule(name=against[0].name, verdict="ask", reason=_cannot_tell(against[0]))]
        if found or script.unparsed or script.besides or script.dangerous:
            return found
        allowing = [rule for rule in mine if rule.verdict == "allow"]
        # A command that is only expected to read is not enforced here, so it needs a rule too.
        needed = [command for command in script.commands if not command.harmless]
        by = [next((rule for rule in allowing if rule.speaks_of(command)), None) for command in needed]
        return [rule for rule in by if rule] if needed and all(by) else []


NO_RULES = Rules()


def load_rules(text: str) -> Rules:
    """Raises RuleError: for bad TOML, unknown keys, or an example that does not hold."""
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
        holds = any(rule.speaks_of(command) for command in read_script(example).commands)
        if not holds and example in rule.match:
            raise RuleError(f"rule {rule.name!r}: it does not match its example {example!r}")
        if holds and example in rule.not_match:
            raise RuleError(f"rule {rule.name!r}: it matches {example!r}, which it should not")


def _cannot_tell(rule: Rule) -> str:
    shown = rule.command if isinstance(rule.command, str) else shlex.join(rule.command)
    return f"it cannot be told whether this runs {shown!r}, which your rule {rule.name!r} is about"
