"""What models write when they go wrong, and a session that has to live with it.

`outputs` makes any number of malformed replies; `survive` takes them through the protocol, the engine and a log on
disk, and out of the log again.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import hypothesis.strategies as st
from tests.engine.doubles import SESSION, EchoRunner, life

from pinfold.engine import Budget
from pinfold.events import (
    Call,
    Delta,
    Entry,
    Event,
    Finish,
    ModelFailed,
    ModelReplied,
    Reply,
    Request,
    RequestFailed,
    Say,
    Thought,
    TurnEnded,
    TurnFailed,
    TurnId,
    Usage,
    UserMessage,
)
from pinfold.log import Log
from pinfold.model import record
from pinfold.model.protocol import TextCallLayer, When
from pinfold.model.scripted import ReplayModel
from pinfold.tools import tool

WHOLE = 10_000_000
"""Characters of the largest outputs."""
LIMIT_S = 1.0
PATIENCE_S = 200.0


@tool(effect="pure")
def read_file(path: str, start_line: int = 1) -> str:
    """Read a file."""
    return f"{path} from {start_line}"


@tool(effect="pure")
def now(tz: str = "UTC") -> str:
    """The time."""
    return f"noon in {tz}"


TOOLS = (read_file, now)

CALL = '{"name": "read_file", "arguments": {"path": "a.csv"}}'
WHOLE_FORMS = (
    "```python\nprint(1)\n```",
    "~~~py\nx = 1\n~~~",
    "```json\n" + CALL + "\n```",
    "```\nnow()\n```",
    CALL,
    f"[{CALL}, {CALL}]",
    '<tool name="read_file">{"path": "a.csv"}</tool>',
    '<tool name="python">\nprint(1)\n</tool>',
    f"<tool_call>\n{CALL}\n</tool_call>",
    "read_file('a.csv', start_line=2)",
    '{"tool_calls": [{"function": {"name": "now", "arguments": "{}"}}]}',
    '{"name": "python", "arguments": {"code": "print(\\"a\\\\nb\\")"}}',
    "> ```python\n> x\n> ```",
    "<think>```python\nx\n```</think>",
)
# fmt: off
FRAGMENTS = (
    "```", "```python\n", "~~~", "\n```\n", "`", "````", "```json\n", "```bash\n", '"""', "'''", "#",
    '<tool name="', '<tool name="python">', "</tool>", "<tool_call>", "</tool_call>", "<tool", "/>", "<think>",
    '{"name": ', '"read_file"', '"arguments": ', '{"path": "', '"}', "}}", "[", "]", "{", "}", ",", ":", "'",
    "read_file(", "now(", "path=", ")", "[now(), ", "True", "None", "NaN", "-Infinity", "1e999", "9" * 5000,
    "\u201c", "\u201d", "\u2018", "\\", '\\"', "\\u", "\\ud800", "\\ud83d\\ude00", "\\x",
    "\n", "\r\n", "\r", "\t", " ", "> ", "- ", "1. ", "    ", "import os\n", "x = ", "print(", "f'{x}'", "Output:\n",
    "\0", "\ud800", "\udfff", "\ud83d", "\ude00", "\u2028", "\x85", "\x0b", "\x1b[2J", "\U0001f469\u200d\U0001f52c", "é",
)
# fmt: on
DEEP = ("[", '{"a":', "(", "{'a': [", '{"name": "now", "arguments": ', "<tool>", "not ", "-", "f(", "> ")


def _deep(opening: str, depth: int, closing: str) -> str:
    return opening * depth + closing * depth


def _edited(text: str, edits: Sequence[tuple[float, str]]) -> str:
    """Each edit puts something where something else was."""
    for place, put in edits:
        at = int(place * len(text))
        text = text[:at] + put + text[at + 1 :]
    return text


_noise = st.text(st.characters(), max_size=30)
_piece = st.one_of(
    st.sampled_from(FRAGMENTS),
    st.sampled_from(WHOLE_FORMS),
    st.builds(
        _edited,
        st.sampled_from(WHOLE_FORMS),
        st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(FRAGMENTS)), max_size=3),
    ),
    st.builds(
        _deep, st.sampled_from(DEEP), st.sampled_from((2, 60, 70, 1_500, 20_000)), st.sampled_from(("", "}", "]", ")"))
    ),
    _noise,
    st.from_regex(r"[ \t\n]{0,40}", fullmatch=True),
)
texts = st.lists(_piece, min_size=1, max_size=14).map("".join)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One reply, as it comes: whole, or broken off in the middle."""

    said: str
    swollen: bool
    """Repeated until it is as long as a reply can be."""
    finish: Finish
    breaks_off: bool
    quoted: bool
    """The user wrote the same."""

    @property
    def text(self) -> str:
        if not self.swollen or not self.said:
            return self.said
        return (self.said * (WHOLE // len(self.said) + 1))[:WHOLE]


def _one_in(many: int) -> st.SearchStrategy[bool]:
    return st.integers(1, many).map(lambda number: number == many - 1)


def outputs(swollen_one_in: int = 150) -> st.SearchStrategy[Output]:
    return st.builds(
        Output,
        said=texts,
        swollen=_one_in(swollen_one_in),
        finish=st.sampled_from(("stop", "stop", "length", "filter")),
        breaks_off=_one_in(12),
        quoted=_one_in(8),
    )


class Babbling:
    """A model that gives one output, in pieces, and then answers that it is done."""

    name = "babbling"

    def __init__(self) -> None:
        self.next: Output | None = None

    async def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:  # noqa: ARG002
        output, self.next = self.next, None
        if output is None:
            yield Reply(text="done")
            return
        text = output.text
        yield Thought("hm")
        size = max(1, len(text) // 5 + 1)
        for start in range(0, len(text), size):
            yield text[start : start + size]
        if output.breaks_off:
            raise RequestFailed("the reply broke off")
        yield Reply(text=text, finish=output.finish, usage=Usage(output_tokens=len(text)), cost=0.25)


class Heard:
    """Measures what it takes to understand a reply."""

    def __init__(self, model: TextCallLayer) -> None:
        self.model = model
        self.slowest_s = 0.0
        """Of the processor, which others may use too."""
        self.corrections = 0

    @property
    def name(self) -> str:
        return self.model.name

    async def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        began = time.thread_time()
        async for piece in self.model.stream(request):
            self.slowest_s = max(self.slowest_s, time.thread_time() - began)
            if isinstance(piece, Reply):
                self.corrections += bool(piece.correction)
            yield piece
            began = time.thread_time()


@dataclass(slots=True)
class Tally:
    outputs: int = 0
    calls: int = 0
    corrections: int = 0
    broken_off: int = 0
    slowest_s: float = 0.0
    slowest: Output | None = None
    slowest_turn_s: float = 0.0
    limit_s: float = LIMIT_S
    wrong: list[str] = field(default_factory=list[str])

    def took(self, output: Output, understanding_s: float, turn_s: float) -> None:
        self.outputs += 1
        self.broken_off += output.breaks_off
        if understanding_s > self.slowest_s:
            self.slowest_s, self.slowest = understanding_s, output
        self.slowest_turn_s = max(self.slowest_turn_s, turn_s)
        if understanding_s > self.limit_s:
            self.note(output, f"{understanding_s:.1f} s to understand")

    def note(self, output: Output, what: str) -> None:
        self.wrong.append(f"{what}: {output.said[:300]!r} {output.swollen=} {output.finish=} {output.quoted=}")


def whole(text: str) -> str:
    """Two halves of a character that stand side by side are that character: JSON cannot tell them apart."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


async def survive(outputs: Sequence[Output], folder: Path, tally: Tally, when: When = "always") -> None:
    """One session in which each output is a turn; then what its log holds, and what a replay of that says."""
    babbling = Babbling()
    heard = Heard(TextCallLayer(babbling, when=when))
    log = _opened(folder)
    async with life(heard, log=log, runner=EchoRunner(tools=TOOLS), budget=Budget(retry_base_s=0.0)) as session:
        for number, output in enumerate(outputs):
            babbling.next, heard.slowest_s = output, 0.0
            began = time.monotonic()
            with anyio.fail_after(PATIENCE_S):
                turn, seen = TurnId(f"t{number}"), log.seq
                await session.submit(Say(turn=turn, text=output.text[:2_000] if output.quoted else "go on"))
                end = await session.ended(turn, after=seen)
            tally.took(output, heard.slowest_s, time.monotonic() - began)
            if not (isinstance(end, TurnEnded) or _is_stopped(end)):
                tally.note(output, f"the turn ended with {end!r:.300}")
    log.close()
    tally.corrections += heard.corrections
    await look_again(folder, outputs, tally)


def _is_stopped(end: Event | Delta) -> bool:
    """It did the same thing over and over, or never gave an answer: that is for the engine to see, and fine with us."""
    return isinstance(end, TurnFailed) and (end.error.startswith("stopped: ") or "gave no usable answer" in end.error)


async def look_again(folder: Path, outputs: Sequence[Output], tally: Tally) -> None:
    """What the log on disk holds of these outputs, and what a recording of it says when it is played."""
    log = Log(folder, SESSION)
    entries = list(log.read())
    log.close()
    said = [entry.event for entry in entries if isinstance(entry.event, ModelReplied | ModelFailed)]
    stored = {event.turn: event for event in reversed(said)}
    for number, output in enumerate(outputs):
        event = stored.get(TurnId(f"t{number}"))
        if isinstance(event, ModelFailed) != output.breaks_off:
            tally.note(output, f"stored as {type(event).__name__}")
        elif isinstance(event, ModelReplied) and event.text != whole(output.text):
            tally.note(output, "stored as another text")
        elif isinstance(event, ModelReplied):
            tally.calls += len(event.actions)
    replay = _recorded(entries, folder / "recording.jsonl")
    for event in said:
        if await _again(replay) != _told(event):
            tally.wrong.append(f"replayed otherwise: {_told(event)!r:.300}")


def _opened(folder: Path) -> Log:
    folder.mkdir()
    return Log(folder, SESSION)


def _recorded(entries: Sequence[Entry], path: Path) -> ReplayModel:
    path.write_text("".join(f"{line}\n" for line in record(entries)), encoding="utf-8")
    return ReplayModel.from_file(path)


async def _again(model: ReplayModel) -> tuple[Any, ...]:
    try:
        async for piece in model.stream(Request(system="", messages=(UserMessage(text="go on"),))):
            if isinstance(piece, Reply):
                return piece.text, _plain(piece.calls), piece.usage, piece.cost
    except RequestFailed as failure:
        return str(failure), failure.status
    raise AssertionError("a replay without a reply")


def _told(event: ModelReplied | ModelFailed) -> tuple[Any, ...]:
    if isinstance(event, ModelFailed):
        return event.error, event.status
    return event.text, _plain(event.actions), event.usage, event.cost


def _plain(calls: Sequence[Call]) -> list[tuple[str, str]]:
    return [(call.tool, json.dumps(call.args, sort_keys=True)) for call in calls]
