"""The fields of OpenAI's protocols and AG-UI that Pinfold reads and writes. Clients may send more."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypeAlias, TypedDict

from msgspec import Meta

from pinfold.events import Json

Objects: TypeAlias = list[dict[str, Json]]


class ChatMessage(TypedDict, total=False):
    role: Required[Literal["system", "developer", "user", "assistant", "tool"]]
    content: str | Objects | None
    tool_calls: Objects | None
    tool_call_id: str | None


class TurnRequest(TypedDict, total=False):
    """The fields that chat completions and responses have in common."""

    model: str | None
    stream: bool | None
    tools: Objects | None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Json] | None
    parallel_tool_calls: bool | None
    conversation: str | dict[str, Json] | None


class ChatRequest(TurnRequest, total=False):
    messages: Required[Annotated[list[ChatMessage], Meta(min_length=1)]]
    n: int | None
    stream_options: dict[str, Json] | None
    response_format: dict[str, Json] | None
    max_completion_tokens: int | None
    max_tokens: int | None


class ResponseRequest(TurnRequest, total=False):
    input: Required[str | Annotated[Objects, Meta(min_length=1)]]
    instructions: str | None
    previous_response_id: str | None
    store: bool | None
    background: bool | None
    text: dict[str, Json] | None
    max_output_tokens: int | None


class EmbeddingRequest(TypedDict, total=False):
    input: Required[str | Annotated[list[str], Meta(min_length=1, max_length=2048)]]
    model: str | None
    encoding_format: Literal["float", "base64"] | None


class RunRequest(TypedDict, total=False):
    """`RunAgentInput` of AG-UI."""

    threadId: Required[str]
    runId: Required[str]
    messages: Required[Objects]
    tools: Objects | None
    context: Objects | None


class ModelRecord(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelRecord]


class ChatUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


class ChatChoice(TypedDict):
    index: int
    message: dict[str, Json]
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: None


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    service_tier: str
    choices: list[ChatChoice]
    usage: ChatUsage


class ResponseUsage(TypedDict):
    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class ResponseRecord(TypedDict):
    """A response; it also repeats the parameters of the request."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "failed", "cancelled", "incomplete"]
    model: str
    output: Objects
    usage: ResponseUsage | None
    error: dict[str, str] | None
    incomplete_details: dict[str, str] | None


class Embedding(TypedDict):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(TypedDict):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: dict[str, int]


class Deleted(TypedDict):
    id: str
    object: str
    deleted: bool
