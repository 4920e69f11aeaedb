"""Events in words, for the model and the user alike."""

from __future__ import annotations

from pinfold.events import Changed, SessionRewound
from pinfold.text import join_names, join_numbers, numerous

NAMED = 12
"""Variables of one kind of change that are told by name."""


def changed_in_words(variables: Changed) -> str:
    """One line, for the model and the user."""
    parts: list[str] = []
    shapes = dict(variables.shapes)
    for how in ("added", "changed", "removed"):
        names: tuple[str, ...] = getattr(variables, how)
        if names:
            told = [f"{name} ({shapes[name]})" if name in shapes else name for name in names]
            parts.append(f"{how} {join_names(told, NAMED)}")
    return f"variables: {'; '.join(parts)}"


def rewound_in_words(event: SessionRewound) -> str:
    """For the model and the user: who did it goes before."""
    turns = event.recalled or event.forgotten
    talk = f"{'brought back' if event.recalled else 'took back'} {numerous('turn', len(turns))} of the conversation"
    if event.what == "chat":
        return f"{talk}; variables and files stay as they are."
    cells = event.redone or event.undone
    which = join_numbers("cell", cells) if cells else "file changes"
    what = {"all": "variables and workspace files", "variables": "variables", "files": "workspace files"}
    state = f"as after cell {event.to}" if event.to else "as at the start"
    did = f"{'redid' if event.again or event.redone else 'undid'} {which}"
    if turns:
        did = f"{talk} and {did}"
    said = [f"{did}: {what[event.what]} are {state}."]
    if event.effects:
        said.append(f"Not undone, because it cannot be: {'; '.join(event.effects)}.")
    return " ".join((*said, *event.notices))
