"""Assembles a chat completion from its chunks, and copes with the variations between servers. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from pinfold.events import BadEvent, Call, Finish, Json, Reply, RequestFailed, Thought, Usage, new_action_id
from pinfold.model.wire.payload import as_count, as_list, as_object, as_text, objects_in, parse_payload

_OPEN = "<think>"
_CLOSE = "</think>"


class ReplyText:
    """The text and reasoning received so far. A `<think>` block at the very beginning becomes Thoughts.

    Each method returns the pieces to show now.
    """

    def __init__(self) -> None:
        self._place: Literal["before", "inside", "after", "text"] = "before"
        self._held = ""
        """Text not shown yet: it may be part of a tag."""
        self._text: list[str] = []
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def thoughts(self) -> str:
        return "".join(self._thoughts)

    def say(self, text: str) -> list[str | Thought]:
        text, self._held = self._held + text, ""
        pieces: list[str | Thought] = []
        if self._place == "before":
            bare = text.lstrip()
            if bare.startswith(_OPEN):
                self._place, text = "inside", bare.removeprefix(_OPEN)
            elif _OPEN.startswith(bare):
                self._held = text
                return []
            else:
                self._place = "text"
        if self._place == "inside":
            thought, close, text = text.partition(_CLOSE)
            if close:
                self._place = "after"
            else:
                held = next((size for size in range(len(_CLOSE) - 1, 0, -1) if thought.endswith(_CLOSE[:size])), 0)
                thought, self._held = thought[: len(thought) - held], thought[len(thought) - held :]
            pieces.append(Thought(thought))
        if self._place == "after":
            text = text.lstrip()
            self._place = "text" if text else "after"
        return self._record([*pieces, text])

    def think(self, text: str) -> list[str | Thought]:
        return self._record([Thought(text)])

    def end(self) -> list[str | Thought]:
        """Return the text held back as a possible part of a tag."""
        held, self._held = self._held, ""
        return self._record([Thought(held) if self._place == "inside" else held])

    def _record(self, pieces: list[str | Thought]) -> list[str | Thought]:
        pieces = [piece for piece in pieces if (piece if isinstance(piece, str) else piece.text)]
        self._text += [piece for piece in pieces if isinstance(piece, str)]
        self._thoughts += [piece.text for piece in pieces if not isinstance(piece, str)]
        return pieces


_FINISH: Mapping[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "filter",
    "safety": "filter",
}
_GAVE_UP = ("error", "insufficient_system_resource", "network_error")
_CUT = "The reply was cut off within the call of {}, which was not run. Write it again, shorter."
_MOST_GLUED = 64
_REASONING = ("reasoning_content", "reasoning", "thinking")


class _Slot(Struct):
    """One call, assembled from its pieces."""

    index: int | None = None
    id: str = ""
    name: str = ""
    pieces: list[str] = []
    whole: Json = None
    """Arguments that the server sent as JSON, not as text."""
    extra: Json = None
    """Data the server expects back with the call."""

    @property
    def begun(self) -> bool:
        return bool(self.pieces) or self.whole is not None

    def add(self, piece: Mapping[str, Json]) -> None:
        function = as_object(piece.get("function")) or piece
        name = as_text(function.get("name"))
        self.id = self.id or as_text(piece.get("id"))
        self.extra = piece.get("extra_content") or self.extra
        if name != self.name:
            self.name += name
        match function.get("arguments"):
            case str(text):
                self.pieces.extend([text] if text else [])
            case None:
                pass
            case whole:
                self.whole = whole

    def calls(self) -> list[Call]:
        values = [self.whole] if self.whole is not None else arguments_in("".join(self.pieces))
        return [Call(id=new_action_id(), tool=self.name, args=args) for args in values]

    @property
    def is_cut(self) -> bool:
        """True if its arguments are incomplete."""
        try:
            parse_payload("".join(self.pieces))
        except BadEvent:
            return self.whole is None
        return False


class ReplyAssembler:
    """Takes the chunks of one reply; returns pieces to show and, at the end, the reply."""

    def __init__(self) -> None:
        self.id = ""
        self.finished = False
        """True once the answer is complete; usage may still follow."""
        self.begun = False
        """True once a chunk held a choice."""
        self._reply_text = ReplyText()
        self._reasoning_key = ""
        self._finish: Finish = "stop"
        self._usage = Usage()
        self._slots: list[_Slot] = []
        self._at: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}

    def add(self, chunk: Mapping[str, Json]) -> list[str | Thought]:
        self.id = self.id or as_text(chunk.get("id"))[:200]
        choices = objects_in(chunk, "choices")
        choice = next((choice for choice in choices if not choice.get("index")), None)
        self._count(chunk, choice or {})
        if choice is None:
            return []
        pieces = self._add_choice(choice)
        if reason := as_text(choice.get("finish_reason")):
            if reason in _GAVE_UP:
                raise RequestFailed(f"the server gave up in the middle of the reply ({reason})")
            self._finish = _FINISH.get(reason, "stop")
            self.finished = True
        return pieces

    def end(self) -> list[str | Thought]:
        """Return the pieces held back."""
        return self._reply_text.end()

    def reply(self, *, model: str, request_id: str) -> Reply:
        in_order = self._in_order()
        cut = in_order.pop() if self._finish == "length" and in_order and in_order[-1].is_cut else None
        slots = [(slot, call) for slot in in_order for call in slot.calls()]
        thoughts = self._reply_text.thoughts
        return Reply(
            text=self._reply_text.text,
            calls=tuple(call for _, call in slots),
            usage=self._usage,
            request_id=request_id or self.id,
            reasoning=thoughts.strip(),
            finish=self._finish,
            correction=_CUT.format(cut.name) if cut else "",
            unreadable=cut is not None,
            echo=self._echo(model, [slot for slot, _ in slots], thoughts) if slots else None,
        )

    def _in_order(self) -> list[_Slot]:
        """Return the calls in the server's order, if it numbers them, else as they arrived."""
        indexes = {slot.index for slot in self._slots}
        if None in indexes or len(indexes) < len(self._slots):
            return list(self._slots)
        return sorted(self._slots, key=lambda slot: slot.index or 0)

    def _add_choice(self, choice: Mapping[str, Json]) -> list[str | Thought]:
        delta, message = as_object(choice.get("delta")), as_object(choice.get("message"))
        if message and not delta and not self.begun:
            delta, self.finished = message, True
        self.begun = True
        pieces: list[str | Thought] = []
        for key in _REASONING:
            if thought := as_text(delta.get(key)):
                self._reasoning_key = key
                pieces.extend(self._reply_text.think(thought))
                break
        for part in _parts(delta.get("content")):
            heard = self._reply_text.say(part) if isinstance(part, str) else self._reply_text.think(part.text)
            pieces.extend(heard)
        pieces.extend(self._reply_text.say(as_text(delta.get("refusal"))))
        for place, piece in enumerate(objects_in(delta, "tool_calls")):
            self._slot_for(piece, place if message else None).add(piece)
        # The older form, for a single call.
        if single := as_object(delta.get("function_call")):
            self._slot_for(single, 0).add(single)
        return pieces

    def _slot_for(self, piece: Mapping[str, Json], place: int | None) -> _Slot:
        index = piece.get("index") if isinstance(piece.get("index"), int) else place
        id_, name = as_text(piece.get("id")), as_text(as_object(piece.get("function")).get("name"))
        if index is None and id_:
            slot = self._by_id.get(id_)
        elif index is None:
            slot = self._slots[-1] if self._slots and not name else None
        else:
            slot = self._at.get(index)
            # Some servers give every call the same index: a different name or id starts a new call.
            if slot is not None and name and slot.name:
                other = bool(id_ and slot.id and id_ != slot.id) or (slot.begun and name != slot.name)
                slot = None if other else slot
        if slot is None:
            slot = _Slot(index=index)
            self._slots.append(slot)
        if index is not None:
            self._at[index] = slot
        if id_:
            self._by_id[id_] = slot
        return slot

    def _count(self, chunk: Mapping[str, Json], choice: Mapping[str, Json]) -> None:
        found = (chunk.get("usage"), choice.get("usage"), as_object(chunk.get("x_groq")).get("usage"))
        usage = next((as_object(usage) for usage in found if usage), None)
        if usage is None:
            return
        details = as_object(usage.get("prompt_tokens_details"))
        self._usage = Usage(
            input_tokens=as_count(usage.get("prompt_tokens")),
            output_tokens=as_count(usage.get("completion_tokens")),
            cached_tokens=as_count(details.get("cached_tokens")) or as_count(usage.get("prompt_cache_hit_tokens")),
            written_tokens=as_count(details.get("cache_write_tokens")),
        )

    def _echo(self, model: str, slots: Sequence[_Slot], thoughts: str) -> Json:
        """Return data to send back with the calls. Models that reason between calls need their reasoning back, under
        the same key."""
        echo: dict[str, Json] = {"model": model, "ids": [slot.id for slot in slots]}
        if any(slot.extra for slot in slots):
            echo["extra"] = [slot.extra for slot in slots]
        if self._reasoning_key:
            echo[self._reasoning_key] = thoughts
        return echo


def _parts(content: Json) -> list[str | Thought]:
    """Split content, which is text or a list of parts, some of them reasoning."""
    if isinstance(content, str):
        return [content] if content else []
    parts: list[str | Thought] = []
    for entry in as_list(content):
        part = as_object(entry)
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            texts = [as_text(as_object(each).get("text")) for each in as_list(inner)] or [as_text(inner)]
            parts.extend(Thought(text) for text in texts if text)
        elif text := as_text(part.get("text")):
            parts.append(text)
    return parts


def arguments_in(text: str) -> list[Json]:
    """Parse the arguments a model wrote: one object, or several without a separator. Unreadable ones stay text."""
    if not text.strip():
        return [{}]
    try:
        value = parse_payload(text)
        # A string: the arguments were encoded as JSON twice.
        return [parse_payload(value) if isinstance(value, str) else value]
    except BadEvent:
        return _read_objects(text) or [text]


def _read_objects(text: str) -> list[Json]:
    """Parse `{...}{...}`: several calls that the server sent as one. Tolerates the usual mistakes in JSON."""
    from pinfold.model.protocol.known_tools import Effort
    from pinfold.model.protocol.lenient_json import Unreadable, value_at

    found: list[Json] = []
    effort, rest = Effort(), text.lstrip()
    while rest and len(found) < _MOST_GLUED:
        if not rest.startswith("{"):
            return []
        try:
            value = value_at(rest, 0, len(rest), place="block", effort=effort)
        except Unreadable:
            return []
        found.append(value.value)
        rest = rest[value.end :].lstrip("]}; \t\r\n")
    return [] if rest else found
