"""Describes what a cell did: in words for the model, as names of changed variables for the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files

from msgspec import UNSET
from msgspec.structs import replace

from pinfold.app.config.schema import LimitsConfig
from pinfold.engine import Performed
from pinfold.events import Changed, Effect
from pinfold.sandbox import Answer, Display, Outcome, Session, Variable
from pinfold.text import BYTES_PER_TOKEN, NO_OUTPUT, cap_text, capped_lines, join_names
from pinfold.tools import ToolFailed

NO_NETWORK = "the network (refused inside the sandbox)"
_UNREACHABLE = (
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "No route to host",
)

OBSERVATION = 10_000
"""Most characters of an action's result that the model sees."""
STDERR = "[stderr]"
"""Heads what a cell wrote to stderr."""
_NO_WAY_OUT = "This session has no network."
_ROLLED_BACK = "The session was rolled back: variables and files of the workspace are as before this code."
_RESTARTED = "The interpreter was restarted: all variables are gone, files are as the code left them."
LAST_WORDS = (_NO_WAY_OUT, _ROLLED_BACK, _RESTARTED, r"[0-9,]+ bytes of output were beyond the limit")
"""Patterns of how Pinfold's own lines in brackets begin."""
_TOLD = 40
"""Most variables named in one line."""
_GLANCE_S = 5.0
_NO_DATA = ("module", "function", "builtin_function_or_method", "type")
"""Types of variables that are not reported."""


def cut_result(text: str, limits: LimitsConfig, most: int, whole: str) -> str:
    """Cut a result to what the model sees, `most` characters or less. `whole` names where all of it can be found."""
    if limits.output_lines is not None:
        text = capped_lines(text, limits.output_lines, whole=whole)
    tokens = None if limits.output_tokens is None else BYTES_PER_TOKEN * limits.output_tokens
    sizes = [size for size in (limits.output_bytes, tokens) if size is not None]
    if sizes and (length := len(text.encode("utf-8", "replace"))) > min(sizes):
        most = min(most, len(text) * min(sizes) // length)
    return cap_text(text, most, whole=whole)


def diff_variables(before: Mapping[str, Variable], after: Mapping[str, Variable]) -> Changed | None:
    new = [one for name, one in after.items() if one != before.get(name) and one.type not in _NO_DATA]
    found = Changed(
        added=tuple(one.name for one in new if one.name not in before),
        changed=tuple(one.name for one in new if one.name in before),
        removed=tuple(one.name for name, one in before.items() if name not in after and one.type not in _NO_DATA),
        shapes=tuple((one.name, f"{one.type} {one.shape}") for one in new if one.shape and " x " in one.shape),
    )
    return found if found != Changed() else None


def inventory(variables: Mapping[str, Variable]) -> str:
    """List the variables, latest first, for a model that has not seen them."""
    newest = sorted(variables.values(), key=lambda one: one.cell or 0, reverse=True)
    names = [_describe_variable(one) for one in newest if one.type not in _NO_DATA]
    return f"Variables of the session, all still there: {join_names(names, _TOLD)}." if names else ""


def _describe_variable(one: Variable) -> str:
    parts = (one.type, one.shape or "", f"of cell {one.cell}" if one.cell else "")
    return f"{one.name} ({' '.join(filter(None, parts))})"


def needs_network(error: str) -> bool:
    """Return True if a traceback ends in an error that code gets for network access in the sandbox."""
    last = error.rstrip().rpartition("\n")[2]
    return any(words in last for words in _UNREACHABLE)


def observation(outcome: Outcome) -> str:
    """Return what the model sees of a cell: its output, its displays, then its value or its error."""
    # Losses come before the output, because the output may end in the answer.
    parts = [f"[{'; '.join(_describe_loss(*one) for one in outcome.lost)}]" if outcome.lost else "", outcome.stdout]
    if outcome.stderr:
        parts.append(f"{STDERR}\n{outcome.stderr}")
    parts += [text for display in outcome.displays if (text := describe_display(display)) != outcome.value]
    if outcome.value is not None:
        parts.append(outcome.value)
    if outcome.error:
        parts.append(outcome.error)
        if needs_network(outcome.error):
            parts.append(f"[{_NO_WAY_OUT}]")
    if outcome.dropped_bytes:
        parts.append(f"[{outcome.dropped_bytes:,} bytes of output were beyond the limit and are gone]")
    parts += [f"[{notice}]" for notice in outcome.notices]
    if outcome.rolled_back:
        parts.append(f"[{_ROLLED_BACK}]")
    if outcome.state_lost:
        parts.append(f"[{_RESTARTED}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return f"{text}\n" if text else f"{NO_OUTPUT}\n"


def _describe_loss(what: str, lost: int, of: int) -> str:
    if what == "dropna":
        return f"dropna left out {lost:,} of {of:,} rows"
    return f'{what}(errors="coerce") turned {lost:,} of {of:,} values into missing ones'


def describe_display(display: Display) -> str:
    """Describe a display: its plain text, or its types and sizes."""
    pictures = [mime for mime in display.mime if mime.startswith("image/")]
    plain = display.mime.get("text/plain")
    if plain is None or pictures:
        forms = [f"{mime}, {len(display.mime[mime]):,} bytes" for mime in pictures or display.mime]
        return f"[shown to the user: {'; '.join(forms)}]"
    return plain.decode("utf-8", "replace")


async def describe_files(session: Session, data: Iterable[str]) -> str:
    """Describe the contents of the files in the workspace and the data, one line each."""
    program = (files("pinfold") / "guest" / "toolbox" / "file_overview.py").read_text("utf-8")
    outcome = await session.command(["python3", "-I", "-c", program, *data], timeout_s=_GLANCE_S)
    return outcome.stdout.decode("utf-8", "replace").strip() if outcome.status == "ok" else ""


def file_of(line: str) -> str:
    """Return the name of the file that a line of `describe_files` is about."""
    return line.partition(":")[0].partition(" (")[0].rpartition("/")[2]


def add_refusals(performed: Performed, refused: Mapping[str, str]) -> Performed:
    """Add the refused destinations and why: the program's own error often hides the reason."""
    if not refused:
        return performed
    notes = "".join(f"[{to} was not reached: {why}]\n" for to, why in refused.items())
    lacked = performed.lacked or f"the network (refused: {', '.join(refused)})"
    return replace(performed, observation=f"{performed.observation.rstrip()}\n{notes}", lacked=lacked)


def answer_to_cell(performed: Performed) -> Answer:
    """Return what a cell gets as the result of a call."""
    if performed.whole is not UNSET:  # also for a failed command: its exit code is in it
        return Answer(status="ok", value=performed.whole)
    is_refused = performed.outcome in ("denied", "not_run")
    status = "ok" if performed.outcome == "ok" else "refused" if is_refused else "failed"
    return Answer(status=status, value=performed.observation)


def report_failure(tool: str, failure: ToolFailed, effect: Effect) -> Performed:
    unknown = failure.may_have_happened and effect != "pure"
    words = f"{failure}; it may or may not have taken effect" if unknown else str(failure)
    return Performed(
        outcome="outcome_unknown" if unknown else "error",
        observation=cap_text(words, OBSERVATION),
        at_fault=tool if failure.at_fault else None,
        untrusted=failure.untrusted,
        sent=failure.sent,
    )
