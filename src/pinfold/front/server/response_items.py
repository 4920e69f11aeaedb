"""The output of a response: its items, and the events that build them, in the order that clients expect."""

from __future__ import annotations

from collections.abc import Iterator

from pinfold.app.clients import Called, Ended, Piece, Said, Thinking
from pinfold.events import Json


class ResponseItems:
    """Builds items from the pieces of a turn. Ids are the same each time the same turn is read."""

    def __init__(self, response: str) -> None:
        self.output: list[dict[str, Json]] = []
        self.calls: list[Called] = []
        self.end: Ended | None = None
        self._name = response.removeprefix("resp_")
        self._open: dict[str, Json] | None = None
        """The item in progress; its text so far is in `_text`."""
        self._text = ""
        self._message = -1

    @property
    def text(self) -> str:
        """All text for the user."""
        return "".join(one["content"][0]["text"] for one in self.output if one["type"] == "message")

    def add(self, piece: Piece) -> Iterator[dict[str, Json]]:
        """Add a piece and yield the events that it causes."""
        match piece:
            case Said(text=text, message=message):
                if self._kind != "message" or message != self._message:
                    yield from self._close()
                    yield from self._begin_message()
                    self._message = message
                yield self._delta("response.output_text.delta", text, content_index=0, logprobs=[])
            case Thinking(text=text):
                if self._kind != "reasoning":
                    yield from self._close()
                    yield from self._begin_reasoning()
                yield self._delta("response.reasoning_summary_text.delta", text, summary_index=0)
            case Called() as call:
                yield from self._close()
                yield from self._add_call(call)
            case Ended():
                self.end = piece
                yield from self._close(incomplete=piece.status in ("incomplete", "cancelled"))

    def take(self, piece: Piece) -> None:
        """Add a piece, without events."""
        for _ in self.add(piece):
            pass

    @property
    def _kind(self) -> str:
        return self._open["type"] if self._open else ""

    def _event(self, kind: str, **more: Json) -> dict[str, Json]:
        return {"type": kind, "output_index": len(self.output), **more}

    def _on_item(self, kind: str, **more: Json) -> dict[str, Json]:
        assert self._open is not None
        return self._event(kind, item_id=self._open["id"], **more)

    def _delta(self, kind: str, text: str, **more: Json) -> dict[str, Json]:
        self._text += text
        return self._on_item(kind, delta=text, **more)

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._name}_{len(self.output)}"

    def _begin_message(self) -> Iterator[dict[str, Json]]:
        self._text = ""
        self._open = {"type": "message", "id": self._id("msg"), "role": "assistant", "status": "in_progress"}
        yield self._event("response.output_item.added", item={**self._open, "content": []})
        yield self._on_item("response.content_part.added", content_index=0, part=_output_text(""))

    def _begin_reasoning(self) -> Iterator[dict[str, Json]]:
        self._text = ""
        self._open = {"type": "reasoning", "id": self._id("rs")}
        yield self._event("response.output_item.added", item={**self._open, "summary": []})
        part = {"type": "summary_text", "text": ""}
        yield self._on_item("response.reasoning_summary_part.added", summary_index=0, part=part)

    def _close(self, *, incomplete: bool = False) -> Iterator[dict[str, Json]]:
        """End the item in progress."""
        if self._open is None:
            return
        if self._kind == "message" and self.end is None:  # clients join the texts of a response without a separator
            yield self._delta("response.output_text.delta", "\n\n", content_index=0, logprobs=[])
        item, text = self._open, self._text
        if item["type"] == "message":
            part = _output_text(text)
            yield self._on_item("response.output_text.done", content_index=0, text=text, logprobs=[])
            yield self._on_item("response.content_part.done", content_index=0, part=part)
            item |= {"status": "incomplete" if incomplete else "completed", "content": [part]}
        else:
            part = {"type": "summary_text", "text": text}
            yield self._on_item("response.reasoning_summary_text.done", summary_index=0, text=text)
            yield self._on_item("response.reasoning_summary_part.done", summary_index=0, part=part)
            item |= {"summary": [part]}
        yield self._event("response.output_item.done", item=item)
        self.output.append(item)
        self._open = None

    def _add_call(self, call: Called) -> Iterator[dict[str, Json]]:
        item: dict[str, Json] = {
            "type": "function_call",
            "id": self._id("fc"),
            "call_id": call.id,
            "name": call.name,
            "arguments": "",
            "status": "in_progress",
        }
        self._open = item
        yield self._event("response.output_item.added", item={**item})
        yield self._on_item("response.function_call_arguments.delta", delta=call.arguments)
        yield self._on_item("response.function_call_arguments.done", arguments=call.arguments, name=call.name)
        item |= {"arguments": call.arguments, "status": "completed"}
        yield self._event("response.output_item.done", item=item)
        self.output.append(item)
        self.calls.append(call)
        self._open = None


def _output_text(text: str) -> dict[str, Json]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
