"""What policy would say of a shell command, and why."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pinfold.events import Allow, Ask, CallTool, Deny, Mode, Verdict
from pinfold.policy.judge import judge
from pinfold.policy.rules import NO_RULES, Rules
from pinfold.policy.shellfacts import shell_facts


def explain(
    command: str,
    *,
    mode: Mode = "ask",
    grants: Collection[str] = (),
    rules: Rules = NO_RULES,
    where: Literal["sandbox", "host"] = "sandbox",
) -> dict[str, Any]:
    """`verdict`, `reason`, `rule` and `pattern`; then the `commands` it was read into, each with why it is expected to write.

    `held_to_reading`: it runs with all files read-only, and is asked about if it then has to change one.
    """
    facts, script = shell_facts(command, where=where)
    action = CallTool(tool="shell", args={"command": command, "where": where})
    verdict = judge(action, facts, mode=mode, grants=grants, rules=rules)
    return {
        **_verdict_fields(verdict),
        "mode": mode,
        "held_to_reading": isinstance(verdict, Allow) and verdict.read_only,
        "reads_only": script.reads_only,
        "dangerous": script.dangerous,
        "commands": [
            {"command": " ".join(word.shown for word in one.words), "reads_only": one.reads_only, "why": one.why}
            for one in script.commands
        ],
        "besides": list(script.besides),
        "deletes": list(script.deletes),
    }


def _verdict_fields(verdict: Verdict) -> dict[str, str]:
    match verdict:
        case Allow(rule=rule):
            return {"verdict": "allow", "reason": rule, "rule": rule, "pattern": ""}
        case Ask(reason=reason, rule=rule, pattern=pattern):
            return {"verdict": "ask", "reason": reason, "rule": rule, "pattern": pattern}
        case Deny(reason=reason, rule=rule):
            return {"verdict": "deny", "reason": reason, "rule": rule, "pattern": ""}
