"""What servers ask for while a call of theirs runs: a person's answer, a page to look at, words of a model.

Each becomes an action of that call, so policy, approval and record are those of any other. With no call under way there
is nobody to ask, and the answer is no.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from pinfold.app.session.action_context import ActionContext, current_action
from pinfold.app.session.mcp.forms import Field, InvalidAnswer, fields_of, is_yes
from pinfold.engine import Performed
from pinfold.events import AssistantMessage, CallTool, Json, Message, PinfoldError, Reply, Request, Sent, UserMessage

SAMPLING = "sampling"
_QUESTION = "ask_user"
_TRIES = 3
Answer = Callable[[Request], Awaitable[tuple[Reply, str, tuple[Sent, ...]]]]
"""A model's reply, its name, and what left this machine for it. Raises PinfoldError."""


class ServerRequests:
    """Person and Sampler of the servers of one session."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._running: dict[str, list[ActionContext]] = {}
        self._wanted: list[dict[str, Json]] = []
        """Requests that wait to be judged: nothing else may be asked under that name."""

    @contextmanager
    def track_call(self, server: str) -> Generator[None]:
        """What is done now is a call of this server; it may ask meanwhile."""
        what = current_action()
        if what is None:
            yield
            return
        running = self._running.setdefault(server, [])
        running.append(what)
        try:
            yield
        finally:
            running.remove(what)

    def _current_call(self, server: str) -> ActionContext | None:
        running = self._running.get(server)
        return running[-1] if running else None

    async def elicit(self, server: str, message: str, schema: Mapping[str, Json]) -> Mapping[str, Json] | None:
        what, fields = self._current_call(server), fields_of(schema)
        if what is None or fields is None:
            return None
        filled: dict[str, Json] = {}
        if not fields:
            words = await _ask_user(what, f"{server} asks: {message}", ("yes", "no"))
            return filled if words is not None and is_yes(words) else None
        for field in fields:
            found = await _field(what, f"{server} asks: {message}\n{field.question}", field)
            if found is None:
                return None
            filled |= found
        return filled

    async def open_page(self, server: str, url: str, why: str) -> bool:
        what = self._current_call(server)
        if what is None:
            return False
        question = f"{server} wants you to open a page in your browser: {why}\n{url}\nWill you?"
        words = await _ask_user(what, question, ("yes", "no"))
        return words is not None and is_yes(words)

    async def sample(
        self, server: str, messages: Sequence[Mapping[str, Json]], *, system: str, max_tokens: int
    ) -> tuple[str, str] | None:
        what = self._current_call(server)
        if what is None or _messages(messages) is None:
            return None
        args: dict[str, Json] = {"messages": list(messages), "system": system, "max_tokens": max_tokens}
        self._wanted.append(args)
        try:
            with what.held():
                performed = await what.on_call(f"{server}.{SAMPLING}", args)
        finally:
            self._wanted.remove(args)
        match performed.whole:
            case {"text": str(text), "model": str(model)} if performed.outcome == "ok":
                return text, model
            case _:
                return None

    def is_sampling(self, action: CallTool) -> bool:
        """Whether a server waits for just this."""
        return action.tool.endswith(f".{SAMPLING}") and action.args in self._wanted

    async def run_sampling(self, action: CallTool) -> Performed:
        """The session's own model answers, without tools and without a word of what the session knows."""
        args = action.given
        messages = _messages(cast("Sequence[Mapping[str, Json]]", args["messages"]))
        assert messages is not None
        request = Request(
            system=str(args["system"]), messages=messages, settings={"max_tokens": int(args["max_tokens"])}
        )
        try:
            reply, model, sent = await self._answer(request)
        except PinfoldError as error:
            return Performed(outcome="error", observation=f"no model answered: {error}")
        return Performed(
            outcome="ok",
            observation=reply.text,
            whole={"text": reply.text, "model": model},
            usage=reply.usage,
            cost=reply.cost,
            sent=sent,
        )


async def _ask_user(what: ActionContext, question: str, options: Sequence[str]) -> str | None:
    with what.held():
        performed = await what.on_call(_QUESTION, {"question": question, "options": list(options)})
    return performed.observation if performed.outcome == "ok" else None


async def _field(what: ActionContext, question: str, field: Field) -> dict[str, Json] | None:
    """The field and its value, nothing if it was left out; None if there is no answer."""
    wrong = ""
    for _ in range(_TRIES):
        words = await _ask_user(what, f"{question}{wrong}", tuple(field.options))
        if words is None:
            return None
        if not words.strip() and not field.is_required:
            return {}
        try:
            return {field.name: field.value(words)}
        except InvalidAnswer as error:
            wrong = f"\n({error})"
    return None


def _messages(given: Sequence[Mapping[str, Json]]) -> tuple[Message, ...] | None:
    """None where there is more to them than text."""
    found: list[Message] = []
    for one in given:
        content: Any = one.get("content")
        parts = cast("list[Any]", content) if isinstance(content, list) else [content]
        texts: list[str] = []
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)}:
                    texts.append(text)
                case _:
                    return None
        text = "\n".join(texts)
        found.append(AssistantMessage(text=text) if one.get("role") == "assistant" else UserMessage(text=text))
    return tuple(found) or None
