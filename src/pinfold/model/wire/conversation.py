"""A request's messages in an order and a shape that every server takes. Pure; no server's format yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinfold.events import (
    ActionId,
    AssistantMessage,
    Call,
    Json,
    Message,
    NotPlain,
    Request,
    ToolMessage,
    ToolSchema,
    UserMessage,
    plain_json,
)
from pinfold.model.wire.payload import an_object, sendable
from pinfold.text import NO_OUTPUT

_NO_RESULT = "(no result: it was interrupted)"


def conversation(request: Request, *, native: bool) -> list[Message]:
    """The messages without empty ones and without answers to nothing, every answer right after its call.

    Where calls are not `native` to the model, they and their answers are told in words.
    """
    return list(_merge_user_messages(_in_order(request.messages, native=native)))


def _in_order(messages: Sequence[Message], *, native: bool) -> Iterator[Message]:
    answers: dict[ActionId, str] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            answers.setdefault(message.id, message.text)
    for message in messages:
        match message:
            case AssistantMessage(calls=calls) if calls and (message.in_text or not native):
                as_written = message.in_text and message.text.strip()
                yield AssistantMessage(text=message.text if as_written else _in_words(message))
                told = [f"Output of {call.tool}:\n{_pop_answer(answers, call)}" for call in calls]
                yield UserMessage(text="\n\n".join(told))
            case AssistantMessage(calls=calls) if calls:
                yield message
                for call in calls:
                    yield ToolMessage(id=call.id, text=_pop_answer(answers, call))
            case AssistantMessage() if message.text.strip():
                yield message
            case UserMessage() if message.text.strip() or message.images:
                yield message
            case _:
                pass


def _pop_answer(answers: dict[ActionId, str], call: Call) -> str:
    text = answers.pop(call.id, _NO_RESULT)
    return text if text.strip() else NO_OUTPUT


def _merge_user_messages(messages: Iterator[Message]) -> Iterator[Message]:
    """Two messages of the user in a row are one: many chat templates refuse anything else."""
    waiting: UserMessage | None = None
    for message in messages:
        if isinstance(message, UserMessage):
            waiting = message if waiting is None else _join_messages(waiting, message)
            continue
        if waiting is not None:
            yield waiting
            waiting = None
        yield message
    if waiting is not None:
        yield waiting


def _join_messages(first: UserMessage, second: UserMessage) -> UserMessage:
    text = "\n\n".join(text for text in (first.text, second.text) if text)
    return UserMessage(text=text, images=(*first.images, *second.images))


def _in_words(message: AssistantMessage) -> str:
    calls = [f'<tool name="{call.tool}">{encode_arguments(call)}</tool>' for call in message.calls]
    return "\n".join([*([message.text] if message.text else []), *calls])


def arguments(call: Call) -> dict[str, Json]:
    """What was called with, as the object that servers insist on, also if the model wrote no object."""
    args: Json = call.args
    return sendable(an_object(args) if isinstance(args, dict) else {"input": args})


def encode_arguments(call: Call) -> str:
    """Its arguments as JSON text."""
    try:
        return plain_json(arguments(call))
    except (NotPlain, RecursionError):
        return '{"input": "(cannot be written as JSON)"}'


def function(tool: ToolSchema) -> dict[str, Json]:
    """A tool as servers want to be told of it."""
    told = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": told}


def tool_name(call: Call) -> str:
    """A name that servers take, also if the model made one up."""
    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in call.tool)
    return name[:64] or "unnamed"
