"""Where code runs: each level is started and has to prove itself; and what the cells find there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pinfold.app.diagnostics.findings import CheckContext, Finding, fault, note
from pinfold.app.ownership.warm_helper import running_helper
from pinfold.app.session.environment import environment_status
from pinfold.events import PinfoldError
from pinfold.sandbox import is_built_in
from pinfold.sandbox.providers.doctor import Report, SandboxCheck
from pinfold.text import join_names


def cells_python(around: CheckContext) -> tuple[Path | None, list[Finding]]:
    """What runs the cells, and how that stands; None: what is configured cannot."""
    sandbox = around.config.sandbox
    what = "environment"
    try:
        stands = environment_status(sandbox.packages, sandbox.python)
    except PinfoldError as error:
        fix = "name one that works: pinfold config set sandbox.python PATH, or --unset it"
        return None, [fault("sandboxes", what, str(error), fix)]
    if sandbox.python:
        return stands.used, [Finding("sandboxes", what, words=f"cells run in {stands.used}")]
    if stands.environment is None:
        cause = "the data environment is not built: cells have no pandas and the like"
        return stands.used, [note("sandboxes", what, cause, "pinfold env build")]
    return stands.used, [Finding("sandboxes", what, words=f"cells run in {stands.folder}")]


def warm_helper(around: CheckContext) -> Finding:
    """Whether one runs, and how to do without."""
    if around.config.sandbox.warm == "off":
        words = "switched off ([sandbox] warm)"
    elif helper := running_helper():
        words = f"process {helper.pid} with {helper.mb} MB; it leaves after 15 idle minutes, or by pinfold up --stop"
    else:
        words = 'none runs; the next exec, run or chat leaves one ([sandbox] warm = "off": never)'
    return Finding("sandboxes", "warm helper", words=words)


def report_findings(report: Report, asked: tuple[str, ...]) -> Iterator[Finding]:
    works = any(checked.status == "proven" for checked in report.sandboxes)
    for checked in report.sandboxes:
        yield _sandbox_finding(checked, is_wanted=checked.name in asked or not works)
    if report.auto:
        taken = next((one for one in report.sandboxes if one.name == report.auto), None)
        level = f", which is {taken.level}" if taken else ""
        yield Finding("sandboxes", "auto", words=f"takes {report.auto}{level}")
    yield _kernel_finding(dict(report.kernel))


def _sandbox_finding(checked: SandboxCheck, *, is_wanted: bool) -> Finding:
    cause, fix = checked.cause or "", checked.fix or ""
    match checked.status:
        case "proven":
            return Finding("sandboxes", checked.name, words=_describe_proof(checked))
        case "unsafe":
            cause, fix = "it works, but isolates nothing", "leave --sandbox out, and auto takes the strongest"
            return fault("sandboxes", checked.name, cause, fix)
        case "leaky":
            return fault("sandboxes", checked.name, cause, fix)
        case "refused":
            # A weaker level of ours than this one will do; someone else's that is installed was meant to work.
            is_note = not is_wanted and is_built_in(checked.name)
            standing = "note" if is_note else "fault"
            return Finding("sandboxes", checked.name, standing=standing, cause=cause, fix=fix)


def _describe_proof(checked: SandboxCheck) -> str:
    words = [f"{checked.level.capitalize()} isolation verified"]
    if checked.first_result_ms:
        words.append(f"starts in {checked.first_result_ms / 1000:.1f} s")
    inside: dict[str, Any] = dict(checked.environment)
    if python := inside.get("python"):
        missing: list[str] = inside["missing"]
        lacks = f"without {join_names(missing, 3)}" if missing else "with the data libraries"
        words.append(f"Python {python} {lacks}")
    return "; ".join(words)


def _kernel_finding(kernel: dict[str, Any]) -> Finding:
    where = f" in {kernel['container']}" if kernel["container"] else ""
    who = "root" if kernel["root"] else "an ordinary user"
    features = {
        "user_namespaces": "user namespaces",
        "mounts": "mounts",
        "seccomp": "seccomp",
        "idmapped_mounts": "idmapped mounts",
        "views": "private views",
    }
    lacks = [words for key, words in features.items() if not kernel[key]]
    landlock = f"Landlock ABI {kernel['landlock_abi']}" if kernel["landlock_abi"] else "no Landlock"
    words = [
        f"{kernel['system']}{where}, as {who}",
        f"without {', '.join(lacks)}" if lacks else "namespaces, mounts, seccomp work",
        landlock,
        f"memory of a session: {kernel['memory']}",
    ]
    return Finding("sandboxes", "kernel", words="; ".join(words))
