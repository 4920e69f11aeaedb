"""What Pinfold is compared with. Every doubt is decided in their favour; docs/design/0036-counting-tokens.md has the terms.

Their agents make no detour, never fail, work out everything in their heads without a word, and are counted by the same
means. What they call is really called, on servers of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from bench.tokens.o200k import tokens
from bench.tokens.task import Task
from bench.tokens.weight import MARKS, Weight, call_text, weigh

from pinfold.events import (
    AssistantMessage,
    Call,
    CallTool,
    Json,
    Message,
    Request,
    ToolMessage,
    UserMessage,
    new_action_id,
)
from pinfold.text import cap_text
from pinfold.tools import Registry, Tool, ToolFailed

Baseline: TypeAlias = Literal[
    "json_calls_all_tools", "json_calls_needed_tools", "json_calls_called_tools", "data_resent", "data_once"
]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
ToolSet: TypeAlias = Literal["all", "needed", "called"]
OBSERVATION = 10_000
"""Characters of one result that the model sees: as Pinfold's does."""
SYSTEM = "You are a helpful assistant. Use the tools to do what the user asks, then answer in a few words."
SYSTEM_DATA = "You are a helpful assistant. Answer questions about the data in a few words."
_WORD = re.compile(r"[^\W_]+(?:[.:-][^\W_]+)*")
_CALLS_ON = 3
"""Digits of a number that stands in no text so far: so long a number was worked out from what came before."""


@dataclass(frozen=True, slots=True)
class Step:
    """Calls of one reply, and what came of each."""

    calls: tuple[Call, ...]
    results: tuple[str, ...]


async def steps_of(turns: Sequence[tuple[str, Sequence[CallTool]]], registry: Registry) -> list[list[Step]]:
    """The same calls as an agent makes them that has no code: at once, unless one needs what another gave.

    A call that was made before in the same turn is not made again, since the result is there to be read.
    """
    known: set[str] = set()
    taken: list[list[Step]] = []
    for asks, actions in turns:
        known |= _words(asks)
        steps: list[Step] = []
        open_: list[tuple[Call, str]] = []
        made: set[str] = set()
        failed = False
        for action in actions:
            call = Call(id=new_action_id(), tool=action.tool, args=action.args)
            if (text := call_text(call)) in made:
                continue
            made.add(text)
            news = _words(" ".join(result for _, result in open_))
            if open_ and (failed or _needs(action.args, news, known)):
                steps.append(_make_step(open_))
                known |= news
                open_ = []
            result, failed = await _call(registry, action)
            open_.append((call, result))
        if open_:
            known |= _words(" ".join(result for _, result in open_))
            steps.append(_make_step(open_))
        taken.append(steps)
    return taken


def _make_step(made: Iterable[tuple[Call, str]]) -> Step:
    calls, results = zip(*made, strict=True)
    return Step(calls, results)


async def _call(registry: Registry, action: CallTool) -> tuple[str, bool]:
    try:
        return cap_text((await registry.call(action.tool, action.args)).text, OBSERVATION), False
    except ToolFailed as failure:
        return str(failure), True


def _needs(args: Json, news: set[str], known: set[str]) -> bool:
    """Whether an argument holds what only the results that are not read yet can have told."""
    for value in _leaves(args):
        words = _words(str(value))
        if any(word in news and word not in known and len(word) > 1 for word in words):
            return True
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and len(re.sub(r"\D", "", str(value))) >= _CALLS_ON and not words & known:
            return True
    return False


def _leaves(value: Json) -> Iterator[Json]:
    match value:
        case dict():
            for one in cast("dict[str, Json]", value).values():
                yield from _leaves(one)
        case list() | tuple():
            for one in cast("Sequence[Json]", value):
                yield from _leaves(one)
        case _:
            yield value


def _words(text: str) -> set[str]:
    return {word for whole in _WORD.findall(text) for word in (whole, *re.split(r"[.:-]", whole))}


async def weigh_json_calls(
    task: Task, calls: Sequence[Sequence[CallTool]], tools: Sequence[Tool[..., Any]]
) -> tuple[dict[Baseline, Weight], list[str]]:
    """The same calls, turn by turn, by agents without code; with the results they saw."""
    turns = [(turn.asks, actions) for turn, actions in zip(task.turns, calls, strict=True)]
    steps = await steps_of(turns, Registry(tools))
    results = [result for taken in steps for step in taken for result in step.results]
    return {
        "json_calls_all_tools": json_calls(task, steps, tools, "all"),
        "json_calls_needed_tools": json_calls(task, steps, tools, "needed"),
        "json_calls_called_tools": json_calls(task, steps, tools, "called"),
    }, results


def json_calls(task: Task, steps: Sequence[Sequence[Step]], tools: Sequence[Tool[..., Any]], which: ToolSet) -> Weight:
    """A chat with tool calls in JSON. All tools are declared, those of the needed servers, or only those it calls."""
    called = {call.tool for taken in steps for step in taken for call in step.calls}
    declared = tuple(
        tool.schema
        for tool in tools
        if which == "all" or (tool.server in task.servers if which == "needed" else tool.name in called)
    )
    exchanges: list[tuple[Request, int]] = []
    messages: list[Message] = []

    def ask(said: AssistantMessage) -> None:
        text = said.text + "".join(map(call_text, said.calls))
        request = Request(system=SYSTEM, messages=tuple(messages), tools=declared)
        exchanges.append((request, tokens(text)))
        messages.append(said)

    for turn, taken in zip(task.turns, steps, strict=True):
        messages.append(UserMessage(text=turn.asks))
        for step in taken:
            ask(AssistantMessage(text="", calls=step.calls))
            messages.extend(
                ToolMessage(id=call.id, text=result) for call, result in zip(step.calls, step.results, strict=True)
            )
        ask(AssistantMessage(text=turn.answer))
    return weigh(exchanges)


def data_in_prompt(task: Task, data: int) -> tuple[Weight, Weight]:
    """A chat without tools over `data` tokens of files: counted once for the whole conversation, and sent with every turn."""
    once = resent = Weight()
    history = 0
    for place, turn in enumerate(task.turns):
        history += MARKS + tokens(turn.asks)
        said = tokens(turn.answer)
        plain = Weight(input=tokens(SYSTEM_DATA) + MARKS + history, output=said, calls=1)
        once += plain + (Weight(input=data) if place == 0 else Weight())
        resent += plain + Weight(input=data)
        history += MARKS + said
    return once, resent


def data_text(task: Task) -> list[str]:
    """The files as a user pastes them."""
    return [f"{name}:\n{file.text}" for name, file in task.files.items()]
