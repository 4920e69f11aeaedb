"""What the judge must know of a shell command."""

from __future__ import annotations

from typing import Literal

from pinfold.policy.facts import Facts
from pinfold.policy.shell import Script, read_script


def shell_facts(command: str, *, where: Literal["sandbox", "host"] = "sandbox") -> tuple[Facts, Script]:
    script = read_script(command)
    if where == "host":
        return Facts(effect="once", reach="host"), script
    if script.reads_only:
        return Facts(effect="pure", reach="files"), script
    # Of a text that was not even looked at nothing is known, not that it stays in the workspace.
    return Facts(effect="once", reach="outside" if script.dangerous or script.unread else "workspace"), script
