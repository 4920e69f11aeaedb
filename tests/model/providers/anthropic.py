"""A server that speaks Anthropic's Messages API as far as we use it, and is as strict as the documentation says.

It streams content blocks piece by piece, refuses conversations the API refuses, knows the signatures of its own
thoughts, and counts what it would have read from and written to its prompt cache.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.model.providers.loopback import Answer, Asked, Stream, refusal

REQUEST_ID = "req_011CSHoEeqs5C35K2UUqR7Fy"


class Anthropic:
    """Gives its answers in order: content blocks as the API defines them, or any other answer as it is."""

    def __init__(self, *answers: Sequence[dict[str, Any]] | Answer, stop_reason: str = "") -> None:
        self._answers = list(answers)
        self._stop_reason = stop_reason
        self._signatures = {
            block["signature"]
            for answer in answers
            if not isinstance(answer, Answer)
            for block in answer
            if block["type"] == "thinking"
        }
        self._cached: set[str] = set()

    def __call__(self, asked: Asked) -> Answer:
        if asked.path.partition("?")[0] != "/v1/messages" or "anthropic-version" not in asked.headers:
            return error(404, "not_found_error", "Not found")
        if complaint := self._complaint(asked.body):
            return error(400, "invalid_request_error", complaint)
        answer = self._answers.pop(0)
        if isinstance(answer, Answer):
            return answer
        usage = self._usage(asked.body)
        return Stream(events=tuple(events(answer, usage, self._stop_reason)))

    # What the API refuses

    def _complaint(self, body: dict[str, Any]) -> str:
        return next(self._complaints(body), "")

    def _complaints(self, body: dict[str, Any]) -> Iterator[str]:
        if not isinstance(body.get("max_tokens"), int):
            yield "max_tokens: Field required"
        for number, tool in enumerate(body.get("tools", [])):
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]):
                yield f"tools.{number}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if not body["messages"] or body["messages"][0]["role"] != "user":
            yield "messages: first message must use the user role"
        marks = sum("cache_control" in block for block, _ in _blocks(body))
        if marks > 4:
            yield f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
        for number, message in enumerate(body["messages"]):
            yield from self._wrong_content(number, message)
            yield from _wrong_pairs(number, body["messages"])

    def _wrong_content(self, number: int, message: dict[str, Any]) -> Iterator[str]:
        if not message["content"]:
            yield f"messages.{number}: all messages must have non-empty content"
        for place, block in enumerate(message["content"]):
            if block["type"] == "text" and not block["text"].strip():
                yield f"messages.{number}: text content blocks must contain non-whitespace text"
            if block["type"] == "thinking" and block["signature"] not in self._signatures:
                yield f"messages.{number}.content.{place}: Invalid `signature` in `thinking` block"
            for text in _texts(block):
                if "\0" in text or re.search("[\ud800-\udfff]", text):
                    yield "The request body is not valid JSON: no low surrogate in string"

    # What the prompt cache would do

    def _usage(self, body: dict[str, Any]) -> dict[str, int]:
        """As the API counts: what was read from the cache and what was written to it is no part of the input."""
        read = written = tokens = 0
        digest = hashlib.sha256()
        marked: list[str] = []
        for block, place in _blocks(body):
            bare = json.dumps([place, {name: value for name, value in block.items() if name != "cache_control"}])
            digest.update(bare.encode())
            tokens += len(bare)
            if digest.hexdigest() in self._cached:
                read = tokens
            if "cache_control" in block:
                marked.append(digest.hexdigest())
                written = tokens
        self._cached.update(marked)
        return {
            "input_tokens": tokens - max(read, written),
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": max(0, written - read),
            "output_tokens": 1,
        }


def _blocks(body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Everything that can be cached, in the order in which the API reads it, each with where it stands."""
    for tool in body.get("tools", []):
        yield tool, "tool"
    system = body.get("system", [])
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield block, "system"
    for message in body["messages"]:
        for block in message["content"]:
            yield block, message["role"]


def _texts(block: dict[str, Any]) -> Iterator[str]:
    for value in block.values():
        if isinstance(value, str):
            yield value


def _wrong_pairs(number: int, messages: list[dict[str, Any]]) -> Iterator[str]:
    message = messages[number]
    answered = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
    before: list[dict[str, Any]] = messages[number - 1]["content"] if number else []
    called = [block["id"] for block in before if block["type"] == "tool_use"]
    if message["role"] == "user" and (missing := [one for one in called if one not in answered]):
        yield (
            f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}."
        )
    if unknown := [one for one in answered if one not in called]:
        yield (
            f"messages.{number}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: "
            f"{', '.join(unknown)}."
        )


# What the API streams


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinking(words: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


def redacted(data: str) -> dict[str, Any]:
    return {"type": "redacted_thinking", "data": data}


def tool_use(id: str, name: str, input: object) -> dict[str, Any]:  # noqa: A002
    """`input` as an object, or as the very text that the model wrote."""
    written = input if isinstance(input, str) else json.dumps(input)
    return {"type": "tool_use", "id": id, "name": name, "input": written}


def events(blocks: Sequence[dict[str, Any]], usage: dict[str, int], stop_reason: str = "") -> Iterator[str]:
    reason = stop_reason or ("tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn")
    message: dict[str, Any] = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield event({"type": "message_start", "message": message})
    yield event({"type": "ping"})
    for index, block in enumerate(blocks):
        yield from _block_events(index, block)
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 42}})
    yield event({"type": "message_stop"})


def _block_events(index: int, block: dict[str, Any]) -> Iterator[str]:
    empty: dict[str, Any]
    deltas: list[dict[str, Any]]
    match block["type"]:
        case "redacted_thinking":
            empty, deltas = block, []
        case "text":
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        case "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case _:
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(block["input"])]
    yield event({"type": "content_block_start", "index": index, "content_block": empty})
    for delta in deltas:
        yield event({"type": "content_block_delta", "index": index, "delta": delta})
    yield event({"type": "content_block_stop", "index": index})


def _pieces(words: str) -> list[str]:
    return ["", *(words[at : at + 7] for at in range(0, len(words), 7))]


def event(data: dict[str, Any]) -> str:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"


def error(status: int, kind: str, message: str, **headers: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": REQUEST_ID}
    return refusal(status, body, request_id=REQUEST_ID, **headers)
