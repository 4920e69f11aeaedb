"""`pinfold doctor`: what works here, why the rest does not, and what to type."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio
import click

from pinfold.app.health import checkup
from pinfold.text import presentable_line, without_known

_MARKS = {"proven": "ok", "unsafe": "!!", "leaky": "!!", "refused": "no"}
_WORDS = {
    "proven": "proven",
    "unsafe": "works, but isolates nothing",
    "leaky": "is not shut in",
    "refused": "does not work here",
}


@click.command("doctor")
@click.option("--sandbox", "names", multiple=True, help="Only this one; else all but unsafe-local.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor_command(names: tuple[str, ...], as_json: bool) -> int:
    """Start every sandbox there is and say what works, what does not, and how to fix it.

    Exits with 0 if code can be run isolated, else with 1.
    """
    report = anyio.run(checkup, names)
    if as_json:
        click.echo(without_known(json.dumps(report)))
    else:
        for line in _page(report):
            click.echo(presentable_line(line))
    return 0 if report["ok"] else 1


def _page(report: dict[str, Any]) -> list[str]:
    lines = ["sandboxes"]
    for checked in report["sandboxes"]:
        lines += _sandbox(checked)
    if report["auto"]:
        lines.append(f"  auto takes {report['auto']}")
    return [
        *lines,
        *_kernel(report["kernel"]),
        *_models(report["models"], report["paused"]),
        *_servers(report["servers"]),
    ]


def _servers(servers: list[dict[str, Any]]) -> list[str]:
    lines = ["MCP servers"] if servers else []
    for one in servers:
        mark = "no" if one["cause"] else "!!" if one["fix"] else "ok"
        lines.append(f"  {mark}  {one['name']}: {one['where']}, {one['tools']} tools")
        lines += [f"      {what + ':':<7}{one[what]}" for what in ("cause", "fix") if one[what]]
    return lines


def _models(models: dict[str, Any], paused: dict[str, float]) -> list[str]:
    lines = ["models"]
    lines += [f"  ok  {name}" for name in models["builtin"]]
    for server in models["servers"]:
        known = ", ".join(server["models"][:3]) or "no model"
        lines.append(f"  ok  {server['kind']} at {server['url']}: {known}")
    lines += [f"  ok  {variable} is set" for variable in models["keys"]]
    if len(lines) == 1:
        lines = [
            "models   none is here: `pinfold model pull builtin`, or start Ollama, or set a provider's key"
        ]
    for what, at in paused.items():
        lines.append(f"  !!  {what} kept failing and was paused {max(0, time.time() - at):.0f} s ago")
    return lines


def _kernel(kernel: dict[str, Any]) -> list[str]:
    where = f" in {kernel['container']}" if kernel["container"] else ""
    who = "root" if kernel["root"] else "an ordinary user"
    landlock = f"ABI {kernel['landlock_abi']}" if kernel["landlock_abi"] else "no"
    has = [
        f"{words} {'yes' if kernel[key] else 'no'}"
        for key, words in (
            ("user_namespaces", "user namespaces"),
            ("mounts", "mounts"),
            ("seccomp", "seccomp"),
            ("idmapped_mounts", "idmapped mounts"),
            ("views", "private views"),
        )
    ]
    groups = ", ".join(f"{name} v{version}" for name, version in kernel["cgroup"].items()) or "none writable"
    return [
        f"kernel   {kernel['system']} {kernel['release']}{where}, as {who}",
        f"  {', '.join(has)}, Landlock {landlock}",
        f"  control groups: {groups}; memory of a session: {kernel['memory']}",
    ]


def _sandbox(checked: dict[str, Any]) -> list[str]:
    status = checked["status"]
    took = f", first result after {checked['first_result_ms']:.0f} ms" if checked["first_result_ms"] else ""
    level = f" {checked['level']}" if status == "proven" else ""
    lines = [f"  {_MARKS[status]}  {checked['name']:<14} {_WORDS[status]}{level}{took}"]
    if python := checked["environment"].get("python"):
        missing = checked["environment"]["missing"]
        lacks = f", without {', '.join(missing)}" if missing else ", with the data libraries"
        lines.append(f"      inside: Python {python}{lacks}")
    lines += [f"      {what}: {how}" for what, how in checked["lacks"]]
    if checked["cause"]:
        lines.append(f"      cause: {checked['cause']}")
    if checked["fix"]:
        lines.append(f"      fix:   {checked['fix']}")
    return lines
