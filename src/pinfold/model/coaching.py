"""What a small model needs to do well: an example before it starts, and its first words put into its mouth.

Measured with bench/tasks.py; docs/design/0022-small-models.md has what each part is worth.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from pinfold.events import AssistantMessage, Message, Reply, Request, Thought, ToolMessage, UserMessage

if TYPE_CHECKING:
    from pinfold.model.chain import Model

FENCE = "```python\n"
MOST_TOKENS = 700
"""Of one reply, unless the settings say otherwise: what goes on for longer goes round in circles."""
_ERRORS = 4
"""Failures in a row after which the model may give up."""
_FAILED = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.MULTILINE)
_SAYS_SOMETHING = re.compile(r"[\d?./\\_]|\w+\.\w+")

EXAMPLE: tuple[Message, ...] = (
    UserMessage(text="How many rows of a.csv have more than 5 items?\n\n[Files in the current folder:\na.csv: 40 rows like id=1, items=7]"),
    AssistantMessage(
        text='```python\nimport pandas as pd\ndf = pd.read_csv("a.csv")\nprint((df["items"] > 5).sum())\n```'
    ),
    UserMessage(text="Output of python:\n12"),
    AssistantMessage(text="12 rows of a.csv have more than 5 items."),
)


class Coached:
    def __init__(self, model: Model) -> None:
        self.name = model.name
        self._model = model

    async def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        pieces = cast("AsyncGenerator[str | Thought | Reply]", self._model.stream(coached(request)))
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def aclose(self) -> None:
        await self._model.aclose()


def coached(request: Request) -> Request:
    settings = {"temperature": 0, "max_tokens": MOST_TOKENS, **request.settings}
    if is_small_talk(request.messages):
        return replace(request, tools=(), settings=settings)
    messages = (*EXAMPLE, *request.messages)
    if starts_with_code(request.messages):
        messages = (*messages, AssistantMessage(text=FENCE))
        settings["stop"] = ["\n```", *settings.get("stop", ())]
    return replace(request, messages=messages, settings=settings)


def starts_with_code(messages: tuple[Message, ...]) -> bool:
    """Whether the next words should be code: at the beginning of a task, and after a failure."""
    match messages[-1] if messages else None:
        case UserMessage():
            return True
        case ToolMessage():
            failures = 0
            for message in reversed(messages):
                if isinstance(message, ToolMessage):
                    if not has_failed(message.text):
                        break
                    failures += 1
                elif isinstance(message, UserMessage):
                    break
            return 0 < failures < _ERRORS
        case _:
            return False


def is_small_talk(messages: tuple[Message, ...]) -> bool:
    """A greeting or a word of thanks: few words, and nothing in them that a file, a number or a question would have."""
    if not messages or not isinstance(last := messages[-1], UserMessage):
        return False
    said = last.text.partition("\n\n[Files in the current folder:")[0]
    return len(said.split()) <= 3 and not _SAYS_SOMETHING.search(said)


def has_failed(observation: str) -> bool:
    return bool(_FAILED.search(observation))
