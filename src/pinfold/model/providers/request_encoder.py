"""From our request to the SDK's: messages, tools and settings. Importing this imports pydantic-ai."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai import messages as sdk
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from pinfold.events import (
    ActionId,
    AssistantMessage,
    BlobId,
    Json,
    Request,
    RequestFailed,
    ToolMessage,
    ToolSchema,
    UserMessage,
    plain_json,
)
from pinfold.model.providers.provider_registry import Provider
from pinfold.model.providers.stream_decoder import Piece, pieces_of
from pinfold.model.wire.conversation import valid_id, valid_name
from pinfold.model.wire.http import Patience

_SAMPLING = ("temperature", "top_p", "top_k")
_ALIKE = (
    *(*_SAMPLING, "max_tokens", "seed", "presence_penalty", "frequency_penalty", "logit_bias"),
    *("parallel_tool_calls", "service_tier", "thinking"),
)
PROMPT_CACHE = "prompt_cache"
"""The setting: whether and how long a provider keeps what it has read; True, False, "5m" or "1h"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRequest:
    """A request as the SDK takes it."""

    messages: list[sdk.ModelMessage]
    parameters: ModelRequestParameters
    settings: ModelSettings
    left_out: tuple[str, ...]
    """Settings that this provider does not have."""


def encode_request(request: Request, *, model: Model[Any], provider: Provider, patience: Patience) -> EncodedRequest:
    settings, left_out = _settings(request.settings, model, provider)
    # No retries here: the engine retries. A setting that the model does not know would print a warning.
    bounds = {"first_event_timeout": patience.first_s, "timeout": patience.idle_s, "max_retries": 0}
    settings |= {name: value for name, value in bounds.items() if name not in model.unsupported_settings}
    return EncodedRequest(
        messages=[*_messages(request, model, provider)],
        parameters=ModelRequestParameters(
            function_tools=[*_tools(request.tools)],
            instruction_parts=[sdk.InstructionPart(content=request.system)] if request.system.strip() else [],
        ),
        settings=cast("ModelSettings", settings),
        left_out=left_out,
    )


def original_names(request: Request) -> Mapping[str, str]:
    """From names of tools as they are sent to names as we know them."""
    used = [
        call.tool for message in request.messages if isinstance(message, AssistantMessage) for call in message.calls
    ]
    return {valid_name(name): name for name in (*used, *(tool.name for tool in request.tools))}


def _tools(tools: Iterable[ToolSchema]) -> Iterator[Any]:
    for tool in tools:
        yield ToolDefinition(
            name=valid_name(tool.name),
            description=tool.description,
            parameters_json_schema=dict(tool.parameters),
            strict=False,
        )


# Messages


def _messages(request: Request, model: Model[Any], provider: Provider) -> Iterator[sdk.ModelMessage]:
    tools: dict[ActionId, str] = {}
    pending: list[sdk.ModelRequestPart] = []
    for message in request.messages:
        match message:
            case UserMessage():
                pending.append(_prompt(message, request.blobs))
            case ToolMessage():
                pending.append(_result(message, tools, provider))
            case AssistantMessage():
                if pending:
                    yield sdk.ModelRequest(parts=pending)
                    pending = []
                tools |= {call.id: call.tool for call in message.calls}
                yield _response(message, model, provider)
    if pending:
        yield sdk.ModelRequest(parts=pending)


def _prompt(message: UserMessage, blobs: Mapping[BlobId, bytes]) -> sdk.UserPromptPart:
    if not message.images:
        return sdk.UserPromptPart(message.text)
    pictures = [sdk.BinaryContent(blobs[image.blob], media_type=image.mime) for image in message.images]
    return sdk.UserPromptPart([*([message.text] if message.text.strip() else []), *pictures])


def _result(message: ToolMessage, tools: Mapping[ActionId, str], provider: Provider) -> sdk.ToolReturnPart:
    return sdk.ToolReturnPart(
        tool_name=valid_name(tools.get(message.id, "")),
        content=message.text,
        tool_call_id=valid_id(message.id, provider.id_length),
    )


def _response(message: AssistantMessage, model: Model[Any], provider: Provider) -> sdk.ModelResponse:
    return sdk.ModelResponse(
        parts=[*_parts(message, pieces_of(provider.name, message), model, provider)],
        provider_name=model.system,
        canonical_system=model.canonical_system,
    )


def _parts(
    message: AssistantMessage, pieces: Sequence[Piece], model: Model[Any], provider: Provider
) -> Iterator[sdk.ModelResponsePart]:
    at = 0
    for piece in pieces:
        # Only what is the provider's own may be marked as such.
        own: dict[str, Any] = (
            {"id": piece.id, "provider_details": piece.details, "provider_name": model.system}
            if piece.is_opaque
            else {}
        )
        if piece.thought is not None:
            yield sdk.ThinkingPart(piece.thought, signature=piece.signature, **own)
        elif piece.text is not None:
            text, at = message.text[at : at + piece.text], at + piece.text
            if text.strip() or piece.is_opaque:
                yield sdk.TextPart(text, **own)
        elif piece.call is not None:
            call = message.calls[piece.call]
            yield sdk.ToolCallPart(
                tool_name=valid_name(call.tool),
                args=_arguments(call.args),
                tool_call_id=valid_id(call.id, provider.id_length),
                **own,
            )


def _arguments(args: Json) -> str | dict[str, Any]:
    """What is not an object goes as text, in which the SDK wraps it up for the provider."""
    if isinstance(args, dict):
        return cast("dict[str, Any]", args)
    return args if isinstance(args, str) else plain_json(args)


# Settings


def _settings(
    given: Mapping[str, Json], model: Model[Any], provider: Provider
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """As the SDK names them, and the names of those that this model does not have."""
    wanted: dict[str, Any] = {}
    others: dict[str, Any] = {}
    cache: Json = True
    own = provider.inner.partition("-")[0] + "_"
    for name, value in given.items():
        if value is None:
            continue
        if name == "stop":
            wanted["stop_sequences"] = [value] if isinstance(value, str) else list(value)
        elif name == PROMPT_CACHE:
            cache = value
        elif name == "extra" and isinstance(value, Mapping):
            others |= cast("Mapping[str, Any]", value)
        elif name == "reasoning_effort":
            wanted["thinking"] = value if value != "none" else False
        elif name in _ALIKE or name.startswith(own):
            wanted[name] = value
        else:
            others[name] = value
    missing = _unsupported_settings(model)
    left_out = [name for name in wanted if name in missing]
    if others and "extra_body" in model.unsupported_settings:
        left_out += others
    elif others:
        wanted["extra_body"] = others
    kept = {name: value for name, value in wanted.items() if name not in missing}
    return _cache_settings(cache, provider) | kept, tuple(sorted(left_out))


def _unsupported_settings(model: Model[Any]) -> frozenset[str]:
    profile = cast("Mapping[str, Any]", model.profile)
    # The SDK would leave these out as well, with a warning on the user's terminal.
    fixed = _SAMPLING if profile.get("anthropic_disallows_sampling_settings") else ()
    return frozenset((*model.unsupported_settings, *fixed))


def _cache_settings(cache: Json, provider: Provider) -> dict[str, Any]:
    """Marks on the tools, on the system prompt and on the last message, which move on with the conversation."""
    if cache not in (True, False, "5m", "1h"):
        raise RequestFailed(f"the setting {PROMPT_CACHE!r} is true, false, '5m' or '1h', not {cache!r}", status=400)
    if not cache:
        return {}
    match provider.name:
        case "anthropic":
            # On the message itself, not by the API's own automatic: gateways that speak the same protocol know it too.
            marks = ("anthropic_cache_tool_definitions", "anthropic_cache_instructions", "anthropic_cache_messages")
            return dict.fromkeys(marks, cache)
        case "bedrock":
            return {"cache": cache}
        case _:
            return {}
