"""A server that speaks Gemini's streamGenerateContent as far as we use it, and is as strict as the documentation says.

It streams candidates as server-sent events with usage that adds up, and wants back the signatures of its own thoughts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.model.providers.loopback import Answer, Asked, Stream, refusal

USAGE = {
    "promptTokenCount": 1200,
    "candidatesTokenCount": 30,
    "thoughtsTokenCount": 12,
    "cachedContentTokenCount": 1000,
    "totalTokenCount": 1242,
}


class Gemini:
    """Gives its answers in order: chunks, each a list of parts as the API defines them, or any other answer as it is."""

    def __init__(self, *answers: Sequence[list[dict[str, Any]]] | Answer, finish: str = "STOP") -> None:
        self._answers = list(answers)
        self._finish = finish
        self._signatures = {
            part["thoughtSignature"]
            for answer in answers
            if not isinstance(answer, Answer)
            for chunk in answer
            for part in chunk
            if "thoughtSignature" in part
        }

    def __call__(self, asked: Asked) -> Answer:
        if not re.fullmatch(r"/v1(beta)?/models/[\w.-]+:streamGenerateContent\?alt=sse", asked.path):
            return error(404, "NOT_FOUND", f"{asked.path} is not found")
        if complaint := next(self._complaints(asked.body), ""):
            return error(400, "INVALID_ARGUMENT", complaint)
        answer = self._answers.pop(0)
        if isinstance(answer, Answer):
            return answer
        return Stream(events=tuple(events(answer, self._finish)))

    def _complaints(self, body: dict[str, Any]) -> Iterator[str]:
        for tool in body.get("tools", []):
            for function in tool["functionDeclarations"]:
                if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}", function["name"]):
                    yield f"Invalid function name {function['name']}. Must start with a letter or an underscore."
        if not body["contents"] or body["contents"][0]["role"] != "user":
            yield "Please ensure that the conversation starts with a user turn."
        for number, content in enumerate(body["contents"]):
            if content["role"] not in ("user", "model") or not content["parts"]:
                yield f"* GenerateContentRequest.contents[{number}].parts: contents.parts must not be empty."
            yield from self._wrong_calls(content)
            yield from _wrong_pairs(number, body["contents"])

    def _wrong_calls(self, content: dict[str, Any]) -> Iterator[str]:
        signed = [part.get("thoughtSignature") for part in content["parts"]]
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            yield "Function call is missing a thought_signature in functionCall parts."
        own = {*self._signatures, "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="}
        if any(signature not in own for signature in signed if signature):
            yield "Thought signature is not valid."


def _wrong_pairs(number: int, contents: list[dict[str, Any]]) -> Iterator[str]:
    responses = [part for part in contents[number]["parts"] if "functionResponse" in part]
    before: list[dict[str, Any]] = contents[number - 1]["parts"] if number else []
    calls = [part for part in before if "functionCall" in part]
    if contents[number]["role"] == "user" and len(responses) != len(calls):
        yield (
            "Please ensure that the number of function response parts is equal to the number of function call "
            "parts of the function call turn."
        )


def call(name: str, args: Mapping[str, Any], signature: str = "", id: str = "") -> dict[str, Any]:
    function = {"name": name, "args": dict(args), **({"id": id} if id else {})}
    return {"functionCall": function, **({"thoughtSignature": signature} if signature else {})}


def events(chunks: Sequence[list[dict[str, Any]]], finish: str = "STOP") -> Iterator[str]:
    for number, parts in enumerate(chunks, start=1):
        last = number == len(chunks)
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        yield event(
            {
                "candidates": [{**candidate, "finishReason": finish} if last else candidate],
                "usageMetadata": USAGE if last else {"promptTokenCount": 1200, "totalTokenCount": 1200},
                "modelVersion": "gemini-3-pro-preview",
                "responseId": "mAitaLmkHPPlz7IPvtfUqQ4",
            }
        )


def event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\r\n\r\n"


def error(status: int, name: str, message: str, *details: dict[str, Any], **headers: str) -> Answer:
    body = {"code": status, "message": message, "status": name, **({"details": details} if details else {})}
    return refusal(status, {"error": body}, **headers)
