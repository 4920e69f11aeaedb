"""What is found while a script is read, put together into a Script."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinfold.policy.lists import lists, named
from pinfold.policy.shell.danger import of_the_whole
from pinfold.policy.shell.script import Command, Script


@dataclass(slots=True)
class Findings:
    commands: list[Command] = field(default_factory=list[Command])
    besides: list[str] = field(default_factory=list[str])
    writes: list[str] = field(default_factory=list[str])
    deletes: list[str] = field(default_factory=list[str])
    reasons: list[str] = field(default_factory=list[str])
    dangers: list[str] = field(default_factory=list[str])
    unparsed: bool = False
    unread: bool = False
    alone: bool = False
    numbers: dict[str, bool] = field(default_factory=dict[str, bool])
    """Variables that were set, and whether to plain numbers only."""
    evaluated: set[str] = field(default_factory=set[str])
    """Variables whose value the shell evaluates as arithmetic."""
    compared: set[str] = field(default_factory=set[str])
    """Variables that become words of a test, and may become its operators."""

    def script(self) -> Script:
        if loose := sorted(name for name in self.evaluated if not self.numbers.get(name)):
            self.beside(f"calculates with {loose[0]}, which may hold more than a number")
        if mixed := sorted(name for name in self.compared if self.numbers.get(name) is False or "(" in name):
            self.beside(f"{mixed[0]} may become part of a test")
        names = {command.name for command in self.commands}
        if "git" in names and names & {"cd", "pushd"}:
            self.beside("git obeys what is configured in the folder it is run in, and the folder is changed")
        danger = of_the_whole(self.commands)
        dangers = [*self.dangers, *([danger] if danger else [])]
        return Script(
            commands=tuple(self.commands),
            besides=tuple(self.besides),
            writes=tuple(dict.fromkeys(self.writes)),
            deletes=tuple(dict.fromkeys(self.deletes)),
            why=next(iter([*self.reasons, *dangers]), ""),
            dangerous=dangers[0] if dangers else None,
            unparsed=self.unparsed,
            alone=self.alone,
            unread=self.unread or (self.unparsed and not self.commands),
        )

    def lost(self, reason: str) -> None:
        self.unparsed = True
        self.beside(f"it cannot be read with certainty: {reason}")

    def stop(self, reason: str) -> None:
        """Some of it is not looked at at all."""
        self.unread = True
        self.lost(reason)

    def beside(self, reason: str) -> None:
        self.besides.append(reason)
        self.reasons.append(reason)

    def _set(self, name: str, *, plain: bool, alone: bool) -> None:
        self.numbers[name] = plain and self.numbers.get(name, True)
        if named(name, lists().harmless):
            return
        if named(name, lists().steering):
            self.beside(f"sets {name}, which steers other programs")
        elif not alone:
            self.beside(f"sets {name} for other programs")
