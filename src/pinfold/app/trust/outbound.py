"""What left this machine, by destination, as a session's log has it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from pinfold.events import ActionFinished, Entry, ModelCalled, ModelReplied


class OutboundTotal(Struct, kw_only=True):
    to: str
    """`host:port`, or whoever serves a model."""
    times: int = 0
    bytes_out: int = 0
    """To a model: of the conversation as it was given, before its provider's format."""
    bytes_back: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def sum_outbound(entries: Iterable[Entry]) -> list[OutboundTotal]:
    """Most bytes first. What runs on this machine is not among them."""
    found: dict[str, OutboundTotal] = {}
    called: dict[str, ModelCalled] = {}
    """The last call of a turn: only its reply says whether anybody was asked."""

    def to(name: str) -> OutboundTotal:
        return found.setdefault(name, OutboundTotal(to=name))

    for event in (entry.event for entry in entries):
        match event:
            case ModelCalled() if event.to:
                called[event.turn] = event
                to(event.to).times += 1
                to(event.to).bytes_out += event.size
            case ModelReplied() if event.turn in called:
                call = called.pop(event.turn)
                one = to(call.to)
                if event.from_cache:
                    one.times -= 1
                    one.bytes_out -= call.size
                    continue
                one.bytes_back += len(event.text.encode("utf-8", "surrogatepass"))
                one.input_tokens += event.usage.input_tokens
                one.output_tokens += event.usage.output_tokens
            case ActionFinished(sent=sent):
                for part in sent:
                    to(part.to).times += 1
                    to(part.to).bytes_out += part.out
                    to(part.to).bytes_back += part.back
            case _:
                pass
    return sorted((one for one in found.values() if one.times), key=lambda one: -one.bytes_out)
