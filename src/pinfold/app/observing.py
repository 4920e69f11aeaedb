"""What is seen of a cell: by the model in words, by the user in names of variables."""

from __future__ import annotations

from collections.abc import Mapping

from pinfold.events import Changed
from pinfold.sandbox import Display, Outcome, Variable

NO_NETWORK = "the network (refused inside the sandbox)"
_UNREACHABLE = (
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "No route to host",
)

_NO_DATA = ("module", "function", "builtin_function_or_method", "type")
"""Types of names that nobody need be told of."""


def changed(before: Mapping[str, Variable], after: Mapping[str, Variable]) -> Changed | None:
    new = [one for name, one in after.items() if one != before.get(name) and one.type not in _NO_DATA]
    found = Changed(
        added=tuple(one.name for one in new if one.name not in before),
        changed=tuple(one.name for one in new if one.name in before),
        removed=tuple(
            one.name for name, one in before.items() if name not in after and one.type not in _NO_DATA
        ),
        shapes=tuple(
            (one.name, f"{one.type} {one.shape}") for one in new if one.shape and " x " in one.shape
        ),
    )
    return found if found != Changed() else None


def needs_network(error: str) -> bool:
    """Whether a traceback ends in what code gets that wants to leave the sandbox."""
    last = error.rstrip().rpartition("\n")[2]
    return any(words in last for words in _UNREACHABLE)


def observation(outcome: Outcome) -> str:
    """What the model sees of a cell: its output, what it displayed, then its value or its error."""
    parts = [outcome.stdout]
    if outcome.stderr:
        parts.append(f"[stderr]\n{outcome.stderr}")
    parts += [text for display in outcome.displays if (text := _told(display)) != outcome.value]
    if outcome.value is not None:
        parts.append(outcome.value)
    if outcome.error:
        parts.append(outcome.error)
        if needs_network(outcome.error):
            parts.append("[This session has no network.]")
    if outcome.dropped_bytes:
        parts.append(f"[{outcome.dropped_bytes:,} bytes of output were beyond the limit and are gone]")
    parts.extend(f"[{notice}]" for notice in outcome.notices)
    if outcome.rolled_back:
        parts.append(
            "[The session was rolled back: variables and files of the workspace are as before this code.]"
        )
    if outcome.state_lost:
        parts.append(
            "[The interpreter was restarted: all variables are gone, files are as the code left them.]"
        )
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return f"{text}\n" if text else "(no output)\n"


def _told(display: Display) -> str:
    """A display in words: its own plain text, or what it is."""
    pictures = [f"{mime}, {len(data):,} bytes" for mime, data in display.mime.items() if _is_picture(mime)]
    plain = display.mime.get("text/plain")
    if plain is None or pictures:
        forms = pictures or [f"{mime}, {len(data):,} bytes" for mime, data in display.mime.items()]
        return f"[shown to the user: {'; '.join(forms)}]"
    return plain.decode("utf-8", "replace")


def _is_picture(mime: str) -> bool:
    return mime.startswith("image/")
