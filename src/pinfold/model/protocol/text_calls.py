"""Makes a model without native tool calls, or of which that is unknown, look like one that has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, cast

from msgspec.structs import asdict, replace

from pinfold.events import (
    ActionId,
    AssistantMessage,
    Call,
    Json,
    Message,
    NotPlain,
    Reply,
    Request,
    ToolMessage,
    ToolSchema,
    UserMessage,
    plain_json,
)
from pinfold.model.layers import AnyModel, Layer, Pieces
from pinfold.model.protocol.known_tools import PYTHON, KnownTools
from pinfold.model.wire.conversation import join_texts, join_turns
from pinfold.model.wire.payload import as_object
from pinfold.text import first_line

Style: TypeAlias = Literal["full", "small"]
"""Wording of the instructions: for a capable model, or for a small one."""

_FENCE = {
    "full": (
        "To act, write a fenced block:\n```python\nprint(6 * 7)\n```\n"
        "It runs and its output comes back to you. Stop after your blocks; never write output yourself. "
        "When done, answer in words without a block."
    ),
    "small": (
        "Write one ```python block that does the task and prints the result after ANSWER:. "
        "Its output comes back to you."
    ),
}
_OTHERS = {
    "full": "These tools are called by a line of their own, with the arguments as JSON, like {}:",
    "small": "Or call a tool with one line, like {}:",
}
_ONLY = "Call a tool with one line, with the arguments as JSON, like {}:"
_ALONE = "The answer comes back to you. When done, answer in words without a call."
_IN_A_FENCE = "Code in a fenced ```python block is run too, and its output sent back."
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict", "null": "None"}  # fmt: skip
_PLAIN_NAME = re.compile(r"[\w.-]{1,64}")


def put_tools_in_prompt(request: Request, *, style: Style) -> Request:
    """Return the request without tools; its system prompt explains how to write calls instead."""
    system = join_texts(request.system.rstrip("\n"), explain_tools(request.tools, style))
    messages = join_turns(tell_calls(request.messages, KnownTools(request.tools)))
    return replace(request, system=system, messages=tuple(messages), tools=())


def explain_tools(tools: Sequence[ToolSchema], style: Style) -> str:
    """Return instructions for the system prompt on how to call the tools."""
    known = KnownTools(tools)
    others = [tool for tool in tools if tool.name != PYTHON]
    parts = [_FENCE[style]] if known.python else []
    if others:
        how = _OTHERS[style] if known.python else _ONLY
        parts.append(how.format(known.form(others[0].name)))
        parts += [_describe_tool(tool, known) for tool in others]
        if not known.python:
            parts.append(_ALONE)
    return "\n".join(parts)


def _describe_tool(tool: ToolSchema, known: KnownTools) -> str:
    properties, required = known.properties(tool.name), known.list_required(tool.name)
    names = sorted(properties, key=lambda name: name not in required)
    arguments = ", ".join(_argument(name, properties[name], needed=name in required) for name in names)
    line = first_line(tool.description)
    return f"{tool.name}({arguments}){f'  {line}' if line else ''}"


def _argument(name: str, schema: Json, *, needed: bool) -> str:
    fields = cast("Mapping[str, Json]", schema if isinstance(schema, Mapping) else {})
    if needed:
        return f"{name}: {_kind(fields)}"
    default = repr(fields["default"]) if "default" in fields else "..."
    return f"{name}: {_kind(fields)} = {default}"


def _kind(fields: Mapping[str, Json]) -> str:
    if isinstance(choices := fields.get("enum"), list | tuple):
        return " | ".join(map(repr, cast("Sequence[Json]", choices)))
    for key in ("anyOf", "oneOf"):
        if isinstance(options := fields.get(key), list | tuple):
            kinds = [_simple(option) for option in cast("Sequence[Json]", options)]
            return " | ".join(dict.fromkeys(kinds))
    return _simple(fields)


def _simple(schema: Json) -> str:
    kind = cast("Mapping[str, Json]", schema).get("type") if isinstance(schema, Mapping) else None
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def tell_calls(messages: Iterable[Message], known: KnownTools) -> Iterator[Message]:
    """Yield the messages with calls and their results as text.

    More messages only add to the end of the output, so prompt caches stay valid.
    """
    tools: dict[ActionId, str] = {}
    for message in messages:
        match message:
            case AssistantMessage(calls=calls, text=text):
                tools.update((call.id, call.tool) for call in calls)
                told = () if message.in_text else [format_call(call, known) for call in calls]
                if text := join_texts(text, *told):  # many servers refuse an empty message
                    yield AssistantMessage(text=text, echo=message.echo)
            case ToolMessage(id=id_, text=text):
                what = f"Output of {tools[id_]}" if id_ in tools else "Output"
                yield UserMessage(text=f"{what}:\n{text.rstrip()}")
            case _:
                yield message


def format_call(call: Call, known: KnownTools) -> str:
    """Write the call in a form that the reply parser reads as exactly this call."""
    from pinfold.model.protocol.reply_parser import is_code_only

    args = as_object(call.args)
    if "arguments" in args:
        return _format_unnamed_tag(call)  # in a tag with the tool's name, `arguments` would be read as a nested call
    if call.tool == PYTHON:
        code = args.get("code")
        if not isinstance(code, str):
            return _format_unnamed_tag(call)
        if len(args) == 1 and is_code_only(code, known):
            return f"```python\n{code}\n```"
    if _PLAIN_NAME.fullmatch(call.tool):
        return f'<tool name="{call.tool}">{_json(call.args)}</tool>'
    return _format_unnamed_tag(call)


def _format_unnamed_tag(call: Call) -> str:
    return f'<tool_call>{{"name": {_json(call.tool)}, "arguments": {_json(call.args)}}}</tool_call>'


def _json(value: Json) -> str:
    """Encode as JSON without `<`, so that nothing in it can be read as a tag."""
    try:
        return plain_json(value).replace("<", "\\u003c")
    except NotPlain:
        return "{}"


When: TypeAlias = Literal["always", "unless-native"]
"""When calls are parsed from the text: always, or until the model's first native call."""


class TextCallLayer(Layer):
    """Parses the wrapped model's tool calls from its text."""

    def __init__(self, model: AnyModel, *, style: Style = "full", when: When = "always") -> None:
        super().__init__(model)
        self.style: Style = style
        self.when: When = when
        self.calls_natively = False
        """True after its first native call: its code fences are no longer calls."""

    async def stream(self, request: Request) -> Pieces:
        """Yield the pieces as they arrive, then the reply with its calls."""
        begun = prefill_of(request)
        async with self.pieces(self._prepare_request(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    yield self._parse_calls(piece, request)
                elif begun and isinstance(piece, str):
                    yield join_prefill(begun, piece)
                    begun = ""
                else:
                    yield piece

    def _prepare_request(self, request: Request) -> Request:
        if self.when == "always":
            return put_tools_in_prompt(request, style=self.style)
        # The wire client itself sends calls that were written as text as text.
        if self.calls_natively or not KnownTools(request.tools).python:
            return request
        return replace(request, system=join_texts(request.system.rstrip("\n"), _IN_A_FENCE))

    def _parse_calls(self, reply: Reply, request: Request) -> Reply:
        is_native = bool(reply.calls) or reply.unreadable  # unreadable: cut off within a native call
        self.calls_natively = self.calls_natively or is_native
        if is_native or (self.calls_natively and self.when == "unless-native"):
            return reply
        from pinfold.model.protocol.reply_parser import parse_reply

        user = [message.text for message in request.messages if isinstance(message, UserMessage)]
        text = join_prefill(prefill_of(request), reply.text)
        reading = parse_reply(text, request.tools, quoted=user, finish=reply.finish)
        return replace(reply, text=text, in_text=bool(reading.calls), **asdict(reading))


def prefill_of(request: Request) -> str:
    """Return the prefill: a last message of the assistant that the model is to continue."""
    last = request.messages[-1] if request.messages else None
    return last.text if isinstance(last, AssistantMessage) and not last.calls else ""


def join_prefill(begun: str, text: str) -> str:
    """Return prefill and reply as one text. Some servers repeat the prefill in the reply."""
    return text if not begun or text.startswith(begun.rstrip()) else begun + text
