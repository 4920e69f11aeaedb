"""A recorded conversation, played again: the same replies in the same order, whatever the context says now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pinfold.events import Entry, ModelFailed, ModelReplied
from pinfold.model.errors import BadScript
from pinfold.model.lines import KeptCall, KeptReply, encode_line, read_lines
from pinfold.model.scripted import ScriptedModel


class ReplayModel(ScriptedModel):
    """As ScriptedModel, but a recording that runs out is an error: nobody knows what the model would have said."""

    @classmethod
    def from_file(cls, path: Path, served: Sequence[str] = ()) -> ReplayModel:
        lines = read_lines(path)
        if not lines:
            raise BadScript(f"{path} holds no recorded reply")
        return cls(lines, name=f"replay:{path}", served=served)

    def _on_exhausted(self) -> KeptReply:
        raise BadScript(f"{self.name} has no reply left: {len(self._lines)} were recorded")


def record(entries: Iterable[Entry]) -> Iterator[str]:
    """The lines of a replay file for any session: what its models said, failures included."""
    for entry in entries:
        match entry.event:
            case ModelReplied() as said:
                calls = tuple(KeptCall(tool=call.tool, args=call.args) for call in said.actions)
                kept = KeptReply(text=said.text, calls=calls, usage=said.usage, cost=said.cost, model=said.model)
                yield encode_line(kept)
            case ModelFailed() as failed:
                yield encode_line(KeptReply(error=failed.error, status=failed.status, model=failed.model))
            case _:
                pass
