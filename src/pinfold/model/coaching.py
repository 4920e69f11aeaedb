"""What a small model needs to do well: examples before it starts, its first words put into its mouth, and a push after
a failure.

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
MOST_TOKENS = 600
"""Of one reply, unless the settings say otherwise: what goes on for longer goes round in circles."""
_FAILURES = 4
"""In a row, after which the model may give up."""
_WARMER = 0.5
"""The temperature after the second failure in a row: at 0 it would fail the same way again."""
_FAILED = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt|Exit)\b", re.MULTILINE)
_EMPTY = re.compile(r"\bnan\b|\bNaN\b|^Empty DataFrame|^Series\(\[\]|^\[\]$|^None$", re.MULTILINE)
_AGAIN = "[This failed. Write the code differently.]"
_ODD = "[That looks wrong. Check the data and write the code differently.]"
_SAYS_SOMETHING = re.compile(r"[\d?./\\_]|\w+\.\w+")
_FILES = "\n\n[Files in the current folder:"


def _example(task: str, files: str, code: str, output: str, answer: str) -> tuple[Message, ...]:
    return (
        UserMessage(text=f"{task}{_FILES}\n{files}]"),
        AssistantMessage(text=f"{FENCE}{code}\n```"),
        UserMessage(text=f"Output of python:\n{output}"),
        AssistantMessage(text=answer),
    )


EXAMPLES: tuple[Message, ...] = (
    *_example(
        "Which shop took the most money? Money is count times cost.",
        "shops.csv: 300 rows like shop=A1, count=3, cost=2.5",
        'import pandas as pd\ndf = pd.read_csv("shops.csv")\ndf["money"] = df["count"] * df["cost"]\n'
        'print(df.groupby("shop")["money"].sum().sort_values(ascending=False).head(3))',
        "shop\nA7    812.5\nA1    640.0\nA2    633.5",
        "Shop A7 took the most money: 812.5.",
    ),
    *_example(
        "Set the port to 9000 in app.ini.",
        "app.ini: 6 lines, first: [server]",
        'import re\ntext = open("app.ini").read()\ntext = re.sub(r"port *= *\\d+", "port = 9000", text)\n'
        'open("app.ini", "w").write(text)\nprint(text)',
        "[server]\nhost = local\nport = 9000",
        "The port in app.ini is 9000 now.",
    ),
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
        *before, last = request.messages
        plain = UserMessage(text=last.text.partition(_FILES)[0])
        return replace(request, tools=(), messages=(*before, plain), settings=settings)
    messages = (*EXAMPLES, *map(_pushed, request.messages))
    failures = failures_at_the_end(request.messages)
    if failures > 1 and "temperature" not in request.settings:
        settings |= {"temperature": _WARMER, "seed": failures}
    if isinstance(messages[-1], UserMessage) or 0 < failures < _FAILURES:
        messages = (*messages, AssistantMessage(text=FENCE))
        settings["stop"] = ["\n```", *settings.get("stop", ())]
    return replace(request, messages=messages, settings=settings)


def _pushed(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    push = _AGAIN if _FAILED.search(message.text) else _ODD if _EMPTY.search(message.text) else ""
    return replace(message, text=f"{message.text.rstrip()}\n{push}") if push else message


def failures_at_the_end(messages: tuple[Message, ...]) -> int:
    """How many times in a row the code failed, or gave nothing."""
    count = 0
    for message in reversed(messages):
        match message:
            case UserMessage():
                break
            case ToolMessage(text=text) if _FAILED.search(text) or _EMPTY.search(text):
                count += 1
            case ToolMessage():
                break
            case _:
                pass
    return count


def is_small_talk(messages: tuple[Message, ...]) -> bool:
    """A greeting or a word of thanks: few words, and nothing in them that a file, a number or a question would have."""
    if not messages or not isinstance(last := messages[-1], UserMessage):
        return False
    said = last.text.partition(_FILES)[0]
    return len(said.split()) <= 3 and not _SAYS_SOMETHING.search(said)
