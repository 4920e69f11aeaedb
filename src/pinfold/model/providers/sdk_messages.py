"""Converts Pinfold's requests to pydantic-ai's, and its streamed events to replies. Imports pydantic-ai."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from pydantic_ai import messages as sdk
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from pinfold.events import (
    ActionId,
    AssistantMessage,
    BadEvent,
    BlobId,
    Call,
    Finish,
    Json,
    NotPlain,
    Reply,
    Request,
    RequestFailed,
    Thought,
    ToolMessage,
    Usage,
    UserMessage,
    convert,
    new_action_id,
    plain_json,
)
from pinfold.model.names import SdkProvider
from pinfold.model.wire.conversation import valid_id, valid_name
from pinfold.model.wire.http import Patience
from pinfold.model.wire.payload import as_object, parse_payload

SdkModel: TypeAlias = Model[Any]
_SAMPLING = ("temperature", "top_p", "top_k")
_ALIKE = (
    *(*_SAMPLING, "max_tokens", "seed", "presence_penalty", "frequency_penalty", "logit_bias"),
    *("parallel_tool_calls", "service_tier", "thinking"),
)
PROMPT_CACHE = "prompt_cache"
"""The setting for the provider's prompt cache: True, False, or a lifetime of "5m" or "1h"."""
_FINISHES: Mapping[str, Finish] = {"length": "length", "content_filter": "filter"}


# Requests


def encode_tools(request: Request) -> ModelRequestParameters:
    """Encode the tools and the system prompt."""
    tools = [
        ToolDefinition(
            name=valid_name(tool.name),
            description=tool.description,
            parameters_json_schema=dict(tool.parameters),
            strict=False,
        )
        for tool in request.tools
    ]
    system = [sdk.InstructionPart(content=request.system)] if request.system.strip() else []
    return ModelRequestParameters(function_tools=tools, instruction_parts=system)


def original_names(request: Request) -> Mapping[str, str]:
    """Map tool names as sent to the provider back to Pinfold's names."""
    used = [call.tool for one in request.messages if isinstance(one, AssistantMessage) for call in one.calls]
    return {valid_name(name): name for name in (*used, *(tool.name for tool in request.tools))}


def encode_messages(request: Request, model: SdkModel, provider: SdkProvider) -> Iterator[sdk.ModelMessage]:
    tools: dict[ActionId, str] = {}
    pending: list[sdk.ModelRequestPart] = []
    for message in request.messages:
        match message:
            case UserMessage():
                pending.append(_prompt(message, request.blobs))
            case ToolMessage():
                name = valid_name(tools.get(message.id, ""))
                pending.append(sdk.ToolReturnPart(name, message.text, tool_call_id=valid_id(message.id)))
            case AssistantMessage():
                if pending:
                    yield sdk.ModelRequest(parts=pending)
                    pending = []
                tools |= {call.id: call.tool for call in message.calls}
                parts = [*_parts(message, model, provider)]
                yield sdk.ModelResponse(
                    parts=parts, provider_name=model.system, canonical_system=model.canonical_system
                )
    if pending:
        yield sdk.ModelRequest(parts=pending)


def _prompt(message: UserMessage, blobs: Mapping[BlobId, bytes]) -> sdk.UserPromptPart:
    if not message.images:
        return sdk.UserPromptPart(message.text)
    pictures = [sdk.BinaryContent(blobs[image.blob], media_type=image.mime) for image in message.images]
    return sdk.UserPromptPart([*([message.text] if message.text.strip() else []), *pictures])


def _parts(message: AssistantMessage, model: SdkModel, provider: SdkProvider) -> Iterator[sdk.ModelResponsePart]:
    at = 0
    for piece in _pieces_of(provider.name, message):
        # Only parts with the provider's own data may carry its name.
        own: dict[str, Json] = {}
        if piece.is_opaque:
            own = {"id": piece.id, "provider_details": piece.details, "provider_name": model.system}
        if piece.thought is not None:
            yield sdk.ThinkingPart(piece.thought, signature=piece.signature, **own)
        elif piece.text is not None:
            text, at = message.text[at : at + piece.text], at + piece.text
            if text.strip() or piece.is_opaque:
                yield sdk.TextPart(text, **own)
        elif piece.call is not None:
            call = message.calls[piece.call]
            # Arguments that are not an object are sent as text, which the SDK wraps for the provider.
            is_sendable = isinstance(call.args, dict | str)
            args: Json = call.args if is_sendable else plain_json(call.args)
            yield sdk.ToolCallPart(valid_name(call.tool), args, tool_call_id=valid_id(call.id), **own)


def encode_settings(
    given: Mapping[str, Json], model: SdkModel, provider: SdkProvider, patience: Patience
) -> tuple[ModelSettings, tuple[str, ...]]:
    """Return the settings under the SDK's names, and the names of settings that this model does not support."""
    # No retries here: the engine retries. A setting that the model does not support would print a warning.
    bounds = {"first_event_timeout": patience.first_s, "timeout": patience.idle_s, "max_retries": 0}
    wanted: dict[str, Json] = {}
    others: dict[str, Json] = {}
    own = provider.inner.partition("-")[0] + "_"
    for name, value in given.items():
        if value is None or name == PROMPT_CACHE:
            continue
        if name == "stop":
            wanted["stop_sequences"] = [value] if isinstance(value, str) else list(value)
        elif name == "extra" and isinstance(value, Mapping):
            others |= cast("Mapping[str, Json]", value)
        elif name == "reasoning_effort":
            wanted["thinking"] = value if value != "none" else False
        elif name in _ALIKE or name.startswith(own):
            wanted[name] = value
        else:
            others[name] = value
    profile = cast("Mapping[str, Json]", model.profile)
    # The SDK would drop these too, but with a warning on the user's terminal.
    fixed = _SAMPLING if profile.get("anthropic_disallows_sampling_settings") else ()
    missing = {*model.unsupported_settings, *fixed}
    left_out = [name for name in wanted if name in missing]
    if others and "extra_body" in missing:
        left_out += others
    elif others:
        wanted["extra_body"] = others
    kept = {name: value for name, value in (wanted | bounds).items() if name not in missing}
    return cast("ModelSettings", _cache_settings(given, provider) | kept), tuple(sorted(left_out))


def _cache_settings(given: Mapping[str, Json], provider: SdkProvider) -> dict[str, Json]:
    """Mark the tools, system prompt and last message as cacheable; the last mark moves on with the conversation."""
    cache = given.get(PROMPT_CACHE)
    cache = True if cache is None else cache
    if cache not in (True, False, "5m", "1h"):
        raise RequestFailed(f"the setting {PROMPT_CACHE!r} is true, false, '5m' or '1h', not {cache!r}", status=400)
    if cache and provider.name == "anthropic":
        # Marks on the message itself, not the API's automatic caching: compatible gateways support only marks.
        marks = ("anthropic_cache_tool_definitions", "anthropic_cache_instructions", "anthropic_cache_messages")
        return dict.fromkeys(marks, cache)
    return {"cache": cache} if cache and provider.name == "bedrock" else {}


# Data that a provider expects back with its own replies


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of a reply, in order. Exactly one of `thought`, `text` and `call` is set."""

    thought: str | None = None
    text: int | None = None
    """Length of this part of the reply's text, in characters."""
    call: int | None = None
    """Index of the call."""
    signature: str | None = None
    id: str | None = None
    details: dict[str, Json] | None = None

    @property
    def is_opaque(self) -> bool:
        """True if it holds data that only its provider can read."""
        return bool(self.signature or self.id or self.details)


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    pieces: list[Piece]


def _echo_of(provider: str, parts: Sequence[sdk.ModelResponsePart]) -> Json:
    """Return the data to send back with this reply later; None if its text and calls are enough."""
    pieces: list[Piece] = []
    calls = 0
    for part in parts:
        if isinstance(part, sdk.TextPart):
            pieces.append(Piece(text=len(part.content), id=part.id, details=_plain(part)))
        elif isinstance(part, sdk.ToolCallPart):
            pieces.append(Piece(call=calls, id=part.id, details=_plain(part)))
            calls += 1
        elif isinstance(part, sdk.ThinkingPart):
            piece = Piece(thought=part.content, signature=part.signature, id=part.id, details=_plain(part))
            # A thought without opaque data is for display only.
            pieces += [piece] if piece.is_opaque else []
    is_needed = any(piece.is_opaque for piece in pieces)
    return msgspec.to_builtins(Echo(provider=provider, pieces=pieces)) if is_needed else None


def _plain(part: sdk.TextPart | sdk.ThinkingPart | sdk.ToolCallPart) -> dict[str, Json] | None:
    try:
        plain_json(part.provider_details)
    except NotPlain:
        return None
    return part.provider_details or None


def _pieces_of(provider: str, message: AssistantMessage) -> list[Piece]:
    """Split the message into parts: as its echo says if that is from this provider and still fits, else by default."""
    try:
        echo = convert(message.echo, Echo)
        pieces = echo.pieces if echo.provider == provider else []
    except msgspec.ValidationError:
        pieces = []
    texts = sum(piece.text or 0 for piece in pieces)
    calls = [piece.call for piece in pieces if piece.call is not None]
    if pieces and texts == len(message.text) and calls == list(range(len(message.calls))):
        return pieces
    thoughts = [piece for piece in pieces if piece.thought is not None]
    words = [Piece(text=len(message.text))] if message.text else []
    return [*thoughts, *words, *(Piece(call=index) for index in range(len(message.calls)))]


# Replies


def piece_of(event: sdk.ModelResponseStreamEvent) -> str | Thought | None:
    """Return the text or thought in an event; None for other events."""
    match event:
        case (
            sdk.PartStartEvent(part=sdk.TextPart(content=text))
            | sdk.PartDeltaEvent(delta=sdk.TextPartDelta(content_delta=text))
        ):
            return text or None
        case (
            sdk.PartStartEvent(part=sdk.ThinkingPart(content=text))
            | sdk.PartDeltaEvent(delta=sdk.ThinkingPartDelta(content_delta=text))
        ):
            return Thought(text) if text else None
        case _:
            return None


def reply_of(
    response: sdk.ModelResponse, *, provider: str, tools: Mapping[str, str], notices: tuple[str, ...]
) -> Reply:
    """Convert a whole response; `tools` maps sent tool names to Pinfold's. Raises RequestFailed if it is incomplete."""
    details = response.provider_details or {}
    request_id = response.provider_response_id or ""
    ended = details.get("finish_reason")
    if response.finish_reason is None and not ended:
        raise RequestFailed("the reply broke off", request_id=request_id)
    if response.finish_reason == "error":
        raise RequestFailed(f"the model broke its reply off: {ended}", request_id=request_id)
    if any(isinstance(part, sdk.FilePart) for part in response.parts):
        notices += ("the model made a picture, which cannot be shown yet",)
    finish = _FINISHES.get(response.finish_reason or "", "stop")
    if finish == "filter":
        names = ("refusal", "block_reason_message", "refusal_category", "block_reason", "finish_reason")
        why = next((str(details[name]) for name in names if details.get(name)), "no reason given")
        notices += (f"{provider} cut the reply off: {why}",)
    return Reply(
        text="".join(part.content for part in response.parts if isinstance(part, sdk.TextPart)),
        calls=tuple(
            Call(id=new_action_id(), tool=tools.get(part.tool_name, part.tool_name), args=_args(part.args))
            for part in response.parts
            if isinstance(part, sdk.ToolCallPart)
        ),
        usage=Usage(
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cached_tokens=response.usage.cache_read_tokens,
            written_tokens=response.usage.cache_write_tokens,
        ),
        request_id=request_id,
        reasoning="".join(part.content for part in response.parts if isinstance(part, sdk.ThinkingPart)),
        finish=finish,
        echo=_echo_of(provider, response.parts),
        notices=notices,
    )


def _args(args: object) -> Json:
    """Return a call's arguments as an object; as written if they are not a JSON object, or nested too deep."""
    if not args:
        return {}
    text = args if isinstance(args, str) else plain_json(args)
    try:
        read = parse_payload(text)
    except BadEvent:
        return text
    return as_object(read) if isinstance(read, dict) else text
