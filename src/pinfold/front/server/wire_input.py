"""Reads requests of the OpenAI protocols into one form: messages, tools, the form of the answer."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, cast
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from msgspec.structs import replace

from pinfold.app import ConfigError
from pinfold.app.session import CallerTerms, check_schema
from pinfold.events import Json, ToolSchema
from pinfold.front.server.endpoints import BadInput

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PICTURE = re.compile(r"!\[[^\]]*\]\(data:[^)]*\)")
_TOOLS = 128
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "summary_text")


class AttachedFile(Struct, frozen=True, kw_only=True):
    """A file sent with a message, or uploaded earlier."""

    name: str = ""
    data: bytes = b""
    file_id: str = ""


class WireMessage(Struct, frozen=True, kw_only=True):
    role: Role
    text: str = ""
    pictures: tuple[bytes, ...] = ()
    files: tuple[AttachedFile, ...] = ()
    calls: tuple[tuple[str, str, str], ...] = ()
    """For the assistant: id, name and arguments of each call."""
    call: str = ""
    """For a tool: id of the call whose result this is."""


class WireInput(Struct, frozen=True, kw_only=True):
    """The messages of a request, split into earlier and new ones."""

    messages: tuple[WireMessage, ...]
    """All messages except instructions."""
    instructions: str = ""

    @property
    def _first_new(self) -> int:
        places = (place for place, one in enumerate(self.messages) if one.role == "assistant")
        return max(places, default=-1) + 1

    @property
    def before(self) -> tuple[WireMessage, ...]:
        """Messages up to the last one of the assistant."""
        return self.messages[: self._first_new]

    @property
    def new(self) -> tuple[WireMessage, ...]:
        return self.messages[self._first_new :]

    @property
    def results(self) -> dict[str, str]:
        """Results by call id; the last one includes what the user adds."""
        found = {one.call: one.text for one in self.new if one.role == "tool"}
        if found and self.text:
            found[[*found][-1]] += f"\n\n[The user adds: {self.text}]"
        return found

    @property
    def text(self) -> str:
        return "\n\n".join(one.text for one in self.new if one.role == "user" and one.text)


def as_object(value: Json) -> dict[str, Json]:
    """Return the value if it is an object, else an empty one."""
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}


def digest_messages(messages: Iterable[WireMessage]) -> str:
    """Hash a conversation, regardless of how the client stores pictures and white space."""
    rows: list[list[Json]] = []
    for one in messages:
        text = " ".join(_PICTURE.sub("", one.text).split())
        rows.append([one.role, text, one.call, [call[0] for call in one.calls]])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def read_chat(body: Mapping[str, Json]) -> WireInput:
    """Read the body of a chat completion. Raises BadInput."""
    return _split([_chat_message(one, f"messages[{place}]") for place, one in enumerate(body["messages"])], "")


def read_response_input(body: Mapping[str, Json]) -> WireInput:
    """Read the input of a response. Raises BadInput."""
    given = body["input"]
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    items = [_response_item(one, f"input[{place}]") for place, one in enumerate(given)]
    return _split([one for one in items if one is not None], body.get("instructions") or "")


def _split(messages: Sequence[WireMessage], instructions: str) -> WireInput:
    system_texts = [instructions, *(one.text for one in messages if one.role == "system")]
    merged: list[WireMessage] = []
    for one in messages:
        last = merged[-1] if merged else None
        if one.role == "system":
            continue
        if last and last.role == one.role == "assistant":
            text = "\n\n".join(filter(None, (last.text, one.text)))
            merged[-1] = replace(last, text=text, calls=(*last.calls, *one.calls))
        else:
            merged.append(one)
    read = WireInput(messages=tuple(merged), instructions="\n\n".join(filter(None, system_texts)))
    if not any(one.text or one.pictures or one.files or one.call for one in read.new):
        raise BadInput("the last message must be the user's, or the result of a tool")
    return read


def _chat_message(given: Json, param: str) -> WireMessage:
    match given:
        case {"role": "tool", "tool_call_id": str(call), "content": content}:
            return WireMessage(role="tool", call=call, text=_text_of(content, param))
        case {"role": "system" | "developer", "content": content}:
            return WireMessage(role="system", text=_text_of(content, param))
        case {"role": "assistant"}:
            return WireMessage(
                role="assistant",
                text=_text_of(given.get("content") or "", param),
                calls=tuple(_call(one, param) for one in given.get("tool_calls") or ()),
            )
        case {"role": "user", "content": content}:
            return _user_message(content, param)
        case _:
            raise BadInput(f"{param} must have a role (system, user, assistant, tool) and content", param)


def _call(given: Json, param: str) -> tuple[str, str, str]:
    match given:
        case {"id": str(id_), "function": {"name": str(name), "arguments": str(arguments)}}:
            return id_, name, arguments
        case _:
            raise BadInput(f"{param}.tool_calls must have id and function", param)


def _response_item(given: Json, param: str) -> WireMessage | None:
    match given:
        case {"type": "function_call_output", "call_id": str(call), "output": output}:
            return WireMessage(role="tool", call=call, text=_text_of(output, param))
        case {"type": "function_call", "call_id": str(call), "name": str(name), "arguments": str(arguments)}:
            return WireMessage(role="assistant", calls=((call, name, arguments),))
        case {"type": "reasoning" | "item_reference" | "compaction"}:
            return None  # the session has the model's reasoning already
        case {"role": "user" | "assistant" | "system" | "developer", "content": _}:
            return _chat_message(given, param)
        case _:
            raise BadInput(f"{param} has a type that is not supported", param)


def _text_of(content: Json, param: str) -> str:
    read = _user_message(content, param)
    if read.pictures or read.files:
        raise BadInput(f"{param}.content must be text here", param)
    return read.text


def _user_message(content: Json, param: str) -> WireMessage:
    if isinstance(content, str):
        return WireMessage(role="user", text=content)
    texts: list[str] = []
    pictures: list[bytes] = []
    files: list[AttachedFile] = []
    for part in cast("list[Json]", content) if isinstance(content, list) else [None]:
        match part:
            case {"type": kind, "text": str(text)} | {"type": "refusal" as kind, "refusal": str(text)} if (
                kind in _TEXT_PARTS
            ):
                texts.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
                pictures.append(_data_in(url, param))
            case {"type": "file", "file": {**file}}:
                files.append(_file(file, param))
            case {"type": "input_file" | "input_image", **file}:
                files.append(_file(file, param))
            case _:
                raise BadInput(f"{param}.content has a part that is not supported; send text, image or file", param)
    return WireMessage(role="user", text="\n\n".join(texts), pictures=tuple(pictures), files=tuple(files))


def _file(given: Mapping[str, Json], param: str) -> AttachedFile:
    match given:
        case {"file_id": str(file_id)}:
            return AttachedFile(file_id=file_id)
        case {"file_data": str(data)}:
            content = _data_in(data, param) if data.startswith("data:") else _decode(data, param)
            return AttachedFile(name=str(given.get("filename") or "attachment"), data=content)
        case _:
            raise BadInput(f"{param}: send a file as file_data or name it by file_id; Pinfold fetches nothing", param)


def _data_in(url: str, param: str) -> bytes:
    """Return the bytes of a data URL. Nothing is ever fetched. Raises BadInput."""
    head, comma, data = url.partition(",")
    if not (head.startswith("data:") and comma):
        raise BadInput(f"{param}: addresses are not fetched; send the content as a data: URL", param)
    return _decode(data, param) if head.endswith(";base64") else unquote_to_bytes(data)


def _decode(data: str, param: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"{param}: the base64 is invalid", param) from error


def read_terms(body: Mapping[str, Json], instructions: str) -> CallerTerms:
    """Read tools and the form of the answer from the body of a chat completion or response. Raises BadInput."""
    schemas = [_tool(one, f"tools[{place}]") for place, one in enumerate(body.get("tools") or ())]
    if len(schemas) > _TOOLS or len({one.name for one in schemas}) < len(schemas):
        raise BadInput(f"tools must have different names, and there may be at most {_TOOLS}", "tools")
    must_call = False
    match body.get("tool_choice"):
        case None | "auto":
            pass
        case "none":
            schemas = []
        case "required" if schemas:
            must_call = True
        case {"type": "function", "name": str(name)} | {"type": "function", "function": {"name": str(name)}} if (
            named := [one for one in schemas if one.name == name]
        ):
            schemas, must_call = named, True
        case _:
            raise BadInput("tool_choice must be none, auto, required, or a function among the tools", "tool_choice")
    return CallerTerms(
        tools=tuple(schemas),
        answer_schema=_answer_schema(body),
        instructions=instructions,
        must_call=must_call,
        one_call=body.get("parallel_tool_calls") is False,
    )


def _tool(given: Json, param: str) -> ToolSchema:
    match given:
        case {"type": "function", "function": {"name": str(name), **rest}} | {
            "type": "function",
            "name": str(name),
            **rest,
        }:
            parameters = as_object(rest.get("parameters"))
            properties = as_object(parameters.get("properties"))
            if not _NAME.fullmatch(name) or not all(isinstance(one, dict) for one in properties.values()):
                raise BadInput(
                    f"{param}: a function has a name of letters, digits, _ and -, and an object schema", param
                )
            return ToolSchema(name=name, description=str(rest.get("description") or ""), parameters=parameters)
        case _:
            raise BadInput(f"{param}: only function tools can be offered; code runs in the session anyway", param)


def _answer_schema(body: Mapping[str, Json]) -> Json:
    form: Json = body.get("response_format") or as_object(body.get("text")).get("format")
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": schema}} | {"type": "json_schema", "schema": schema}:
            try:
                return check_schema(schema, "of the answer")
            except ConfigError as error:
                raise BadInput(str(error), "response_format") from error
        case _:
            raise BadInput("the form of the answer must be text, json_object or json_schema", "response_format")
