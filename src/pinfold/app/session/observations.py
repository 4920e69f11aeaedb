"""What is seen of a cell: by the model in words, by the user in names of variables."""

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
"""Characters of one action that the model sees."""
STDERR = "[stderr]"
"""Stands before what a cell wrote there."""
_NO_WAY_OUT = "This session has no network."
_ROLLED_BACK = "The session was rolled back: variables and files of the workspace are as before this code."
_RESTARTED = "The interpreter was restarted: all variables are gone, files are as the code left them."
LAST_WORDS = (_NO_WAY_OUT, _ROLLED_BACK, _RESTARTED, r"[0-9,]+ bytes of output were beyond the limit")
"""How lines in brackets begin that are ours, as patterns."""
_TOLD = 40
"""Variables that are named in one line."""
_GLANCE_S = 5.0
_NO_DATA = ("module", "function", "builtin_function_or_method", "type")
"""Types of variables that are not reported."""


def cut_result(text: str, limits: LimitsConfig, most: int, whole: str) -> str:
    """As much of a result as the model sees; `most`: characters, in any case. `whole` names where all of it can be found."""
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
    """What a model is told that knows of none of them; those bound last come first."""
    newest = sorted(variables.values(), key=lambda one: one.cell or 0, reverse=True)
    told = [_describe_variable(one) for one in newest if one.type not in _NO_DATA]
    return f"Variables of the session, all still there: {join_names(told, _TOLD)}." if told else ""


def _describe_variable(one: Variable) -> str:
    parts = (one.type, one.shape or "", f"of cell {one.cell}" if one.cell else "")
    return f"{one.name} ({' '.join(filter(None, parts))})"


def needs_network(error: str) -> bool:
    """Whether a traceback ends in what code gets that wants to leave the sandbox."""
    last = error.rstrip().rpartition("\n")[2]
    return any(words in last for words in _UNREACHABLE)


def observation(outcome: Outcome) -> str:
    """What the model sees of a cell: its output, what it displayed, then its value or its error."""
    # Before the output, which may end in the answer.
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
    """A display in words: its own plain text, or what it is."""
    pictures = [mime for mime in display.mime if mime.startswith("image/")]
    plain = display.mime.get("text/plain")
    if plain is None or pictures:
        forms = [f"{mime}, {len(display.mime[mime]):,} bytes" for mime in pictures or display.mime]
        return f"[shown to the user: {'; '.join(forms)}]"
    return plain.decode("utf-8", "replace")


async def describe_files(session: Session, data: Iterable[str]) -> str:
    """How those of the workspace and of the data are made, a line each."""
    program = (files("pinfold") / "guest" / "toolbox" / "file_overview.py").read_text("utf-8")
    outcome = await session.command(["python3", "-I", "-c", program, *data], timeout_s=_GLANCE_S)
    return outcome.stdout.decode("utf-8", "replace").strip() if outcome.status == "ok" else ""


def file_of(line: str) -> str:
    """The name of the file that such a line is about."""
    return line.partition(":")[0].partition(" (")[0].rpartition("/")[2]


def add_refusals(performed: Performed, refused: Mapping[str, str]) -> Performed:
    """Told of what it did not get to: what a program makes of a refusal often hides the reason."""
    if not refused:
        return performed
    notes = "".join(f"[{to} was not reached: {why}]\n" for to, why in refused.items())
    lacked = performed.lacked or f"the network (refused: {', '.join(refused)})"
    return replace(performed, observation=f"{performed.observation.rstrip()}\n{notes}", lacked=lacked)


def answer_to_cell(performed: Performed) -> Answer:
    """What a cell gets of an action it called for."""
    if performed.whole is not UNSET:  # a command that failed among them: its code is in there
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
