"""Helps a small model do well: adds examples before the conversation, prefills the start of its reply, and adds a hint
after a failure.

Measured with bench/tasks.py; docs/design/0020-models.md says why each part is there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePath

from msgspec.structs import replace

from pinfold.events import FILES_TOLD, AssistantMessage, Message, Reply, Request, ToolMessage, UserMessage
from pinfold.model.layers import Layer, Pieces
from pinfold.text.answer_forms import LACKS, asked_form

FENCE = "```python\n"
MOST_TOKENS = 600
"""Default limit of one reply: longer ones repeat themselves."""
_FAILURES = 4
"""Failures in a row after which code is no longer forced and the model may give up."""
_SURE = 2
"""Failed or empty results in a row from which an empty result is accepted as the answer."""
_WARMER = 0.5
"""The temperature from the second failure in a row on: at 0 the model would fail the same way again."""
_FAILED = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt|Exit)\b", re.MULTILINE)
_EMPTY = re.compile(
    r"\b[nN]a[nN]\b|^Empty DataFrame|^Series\(\[\]|^\[\]$|^None$|^ANSWER:.*(?<![\d.,:-])0(?:\.0+)?(?![\d.,:%-]\d|[\d:%-])",
    re.MULTILINE,
)
"""Output that shows an empty result: more often than not the code was wrong."""
_ANSWER = re.compile(r"^ANSWER: *(.*)", re.MULTILINE | re.DOTALL)
_CHANGES = re.compile(r"\n\[variables: .*\]\s*$")
_AGAIN = "[This failed. Write the code differently.]"
_ODD = "[That can hardly be. Check how the data is written, and write the code differently.]"
_SAYS_SOMETHING = re.compile(r"[\d?./\\_]|\w+\.\w+")
_FILES = f"\n\n{FILES_TOLD}"
_NAME = re.compile(r"^([^:\n]+\.\w+)(?=:| \(|\]?$)", re.MULTILINE)


def _read_examples() -> Mapping[str, tuple[Message, ...]]:
    text = Path(__file__).with_name("small_model_examples.toml").read_text(encoding="utf-8")
    return {
        kind: (
            UserMessage(text=f"{one['task']}{_FILES}\n{one['files']}]" if one["files"] else one["task"]),
            AssistantMessage(text=f"{FENCE}{one['code']}\n```"),
        )
        for kind, one in tomllib.loads(text).items()
    }


EXAMPLES = _read_examples()
_ENDINGS = {
    "table": (".csv", ".tsv"),
    "tree": (".json", ".jsonl"),
    "text": (".log", ".txt", ".md"),
    "settings": (".ini", ".toml", ".yaml", ".yml", ".cfg", ".conf"),
}
_KINDS = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings}
_DATA = (*_ENDINGS["table"], *_ENDINGS["tree"], ".xlsx", ".parquet")


def examples_for(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Choose examples by the kinds of files in the first user message, which stay the same for the whole session."""
    first = next((message for message in messages if isinstance(message, UserMessage)), None)
    ends = [PurePath(name).suffix for name in find_task_files(first.text)] if first else []
    kinds = dict.fromkeys(_KINDS[end] for end in ends if end in _KINDS)
    if sum(_KINDS.get(end) == "table" for end in ends) > 1:
        kinds = dict.fromkeys("tables" if kind == "table" else kind for kind in kinds)
    form = asked_form(first.text.partition(_FILES)[0]) if first else None
    if form and form.begins.startswith("@"):  # with an example, it prints the answer in this form at once
        kinds = dict.fromkeys([*(kind for kind in kinds if kind != "table"), "form"][-2:])
    chosen = list(kinds)[:2] or ["other"]
    return tuple(message for kind in chosen for message in EXAMPLES[kind])


def find_task_files(text: str) -> list[str]:
    """Return the listed files that the task names. A data file that is the only one counts even if not named."""
    task, _, files = text.partition(_FILES)
    names = _NAME.findall(files)
    data = [name for name in names if PurePath(name).suffix in _DATA]
    return [name for name in names if data == [name] or _is_named(name, task)]


def _is_named(path: str, task: str) -> bool:
    file = PurePath(path)
    return any(part and part in task for part in (file.name, file.suffix, file.stem if len(file.stem) > 2 else ""))


def hide_other_files(message: Message) -> Message:
    """Reduce files that the task is not about to their names: a small model would use any details it sees."""
    if not isinstance(message, UserMessage) or _FILES not in message.text:
        return message
    task, _, files = message.text.partition(_FILES)
    meant = find_task_files(message.text)
    lines = [
        line if line.partition(":")[0] in meant else line.partition(":")[0]
        for line in files.strip("\n").removesuffix("]").split("\n")
    ]
    return replace(message, text=f"{task}{_FILES}\n" + "\n".join(lines) + "]")


class SmallModelLayer(Layer):
    async def stream(self, request: Request) -> Pieces:
        if (answer := find_answer(request.messages)) is not None:
            yield answer
            yield Reply(text=answer, cost=0.0)
            return
        async with self.pieces(adapt_to_small_model(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply) and not piece.calls:
                    yield replace(piece, text=piece.text.strip().removeprefix("ANSWER:").lstrip())
                else:
                    yield piece


def adapt_to_small_model(request: Request) -> Request:
    settings = {"temperature": 0, "max_tokens": MOST_TOKENS, **request.settings}
    if is_small_talk(request.messages):
        *before, last = request.messages
        plain = UserMessage(text=last.text.partition(_FILES)[0])
        return replace(request, tools=(), messages=(*before, plain), settings=settings)
    failures = count_last_failures(request.messages)
    tried = request.messages
    if failures > 1:  # keep only the last: a small model repeats the failures it sees
        tried = (*tried[: -2 * failures], *tried[-2:])
    told = (_add_retry_hint(hide_other_files(message)) for message in tried)
    messages: tuple[Message, ...] = (*examples_for(request.messages), *told)
    if failures > 1 and "temperature" not in request.settings:
        settings |= {"temperature": _WARMER, "seed": failures}
    if begun := start_answer(request.messages):
        messages = (*messages, AssistantMessage(text=begun))
        settings["stop"] = ["\n\n", *settings.get("stop", ())]
    elif isinstance(messages[-1], UserMessage) or 0 < failures < _FAILURES:
        messages = (*messages, AssistantMessage(text=FENCE))
        settings["stop"] = ["\n```", *settings.get("stop", ())]
    return replace(request, messages=messages, settings=settings)


def start_answer(messages: tuple[Message, ...]) -> str:
    """Return the prefill for an answer rejected for its form: left free, the model would write code again."""
    said = [message.text for message in messages if isinstance(message, UserMessage)]
    if len(said) < 2 or LACKS not in said[-1] or messages[-1].text != said[-1]:
        return ""
    form = asked_form(said[-2].partition(_FILES)[0])
    return form.begins if form else ""


def find_answer(messages: tuple[Message, ...]) -> str | None:
    """Return the answer that the last program printed, if any: asking the model to repeat it only adds mistakes."""
    if not messages or not isinstance(last := messages[-1], ToolMessage):
        return None
    if _FAILED.search(last.text) or (_EMPTY.search(last.text) and count_last_failures(messages) < _SURE):
        return None
    said = _ANSWER.search(last.text)
    return _CHANGES.sub("", said[1]).strip() or None if said else None


def _add_retry_hint(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    push = _AGAIN if _FAILED.search(message.text) else _ODD if _EMPTY.search(message.text) else ""
    return replace(message, text=f"{message.text.rstrip()}\n{push}") if push else message


def count_last_failures(messages: tuple[Message, ...]) -> int:
    """Count the failed or empty results at the end of the conversation."""
    count = 0
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            continue
        if isinstance(message, UserMessage) or not (_FAILED.search(message.text) or _EMPTY.search(message.text)):
            break
        count += 1
    return count


def is_small_talk(messages: tuple[Message, ...]) -> bool:
    """True for a greeting or thanks: at most three words, without digits, question marks, paths or dotted names."""
    if not messages or not isinstance(last := messages[-1], UserMessage):
        return False
    said = last.text.partition(_FILES)[0]
    return len(said.split()) <= 3 and not _SAYS_SOMETHING.search(said)
