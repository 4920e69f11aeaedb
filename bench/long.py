"""A long session in a small window: `./.venv/bin/python bench/long.py [--window 8192] [--tasks 24]`

The oracle programs of the task set are run one after the other in one session, each a turn of a scripted model, with the
data printed as an agent would look at it, a failing cell and a call with an effect now and then. The same script runs with
a window that never fills. Exits 0 only if the compacted session compacted often enough, answered every question about a
variable, ends with the same variables and files, repeated no effect, used at most half of the tokens, and every summary
has its sections.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.task_suite.dev import TASKS

from pinfold import Agent, tool
from pinfold.events import ActionFinished, ContextCompacted, Delta, Event, Reply, Request, new_action_id
from pinfold.events import Call as ToolCall

COMPACTIONS = 20
SHARE = 0.5
LOOK = 9000
"""Characters that each task prints of its data, over and over if it is short."""
SECTIONS = ("DONE", "FAILED", "NEXT")
STATE = """
import hashlib, json, os
_shown = {name: repr(value) for name, value in sorted(globals().items()) if name.startswith("needle_")}
_files = {name: hashlib.sha256(open(name, "rb").read()).hexdigest() for name in sorted(os.listdir(".")) if os.path.isfile(name)}
print(json.dumps({"variables": _shown, "files": _files}))
"""


@dataclass
class Script:
    """A model that runs the given code, one cell a step, and then answers; it counts what it is sent."""

    context: int | None
    name: str = "script"
    steps: list[str] = field(default_factory=list[str])
    sent: int = 0
    largest: int = 0

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply]:
        size = len(request.system) + sum(len(message.text) for message in request.messages)
        size += sum(len(str(call.args)) for message in request.messages for call in getattr(message, "calls", ()))
        self.sent += size
        self.largest = max(self.largest, size)
        if not self.steps:
            yield Reply(text="Done.")
            return
        kind, _, code = self.steps.pop(0).partition("\n")
        tool_name, args = ("send", {"to": code}) if kind == "send" else ("python", {"code": code})
        yield Reply(text="Next.", calls=(ToolCall(id=new_action_id(), tool=tool_name, args=args),))


@dataclass
class Run:
    events: list[Event | Delta]
    sent: list[str]
    model: Script
    state: str
    answers: int

    @property
    def compactions(self) -> list[ContextCompacted]:
        return [event for event in self.events if isinstance(event, ContextCompacted)]


def steps_of(number: int, oracle: str, names: list[str]) -> list[str]:
    looks = [f"print((open({name!r}).read() * 1000)[:{LOOK}])" for name in names]
    looks += [f"print(*sorted(open({name!r})), sep='\\n')" for name in names]
    looks += [f"print([line.split(',') for line in open({name!r})])" for name in names]
    # An oracle's own names would meet those of others; its result is what is asked about later.
    quoted = json.dumps(oracle)
    run = (
        "import contextlib as _c, io as _io\n_out = _io.StringIO()\n"
        f"with _c.redirect_stdout(_out): exec({quoted}, {{'__name__': '__main__'}})\n"
        f"needle_{number} = _out.getvalue().strip()\nprint(needle_{number}[:200])"
    )
    steps = [f"cell\n{look}" for look in looks]
    if number % 5 == 0:
        steps.append(f"cell\nundefined_{number} + 1")
    if number % 4 == 0:
        steps.append(f"send\nmail {number}")
    return [*steps, f"cell\n{run}"]


async def run(window: int | None, count: int) -> Run:
    sent: list[str] = []

    @tool(effect="once")
    def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"sent to {to}"

    tasks = [task for task in TASKS if task.scene.oracle and not task.scene.copies][:count]
    model, events, answers = Script(context=window), list[Event | Delta](), 0
    with tempfile.TemporaryDirectory(prefix="pinfold-long-") as folder:
        settings = {"model.context": window} if window else {}
        agent = Agent(model=model, workspace=folder, tools=[send], max_steps=100, ephemeral=True, settings=settings)
        async with agent:
            for number, task in enumerate(tasks):
                task.lay(Path(folder))
                model.steps = steps_of(number, task.scene.oracle, [name for name in task.scene.files if "." in name])
                events += [event async for event in agent.stream(task.prompt)]
            for number in range(len(tasks)):
                model.steps = [f"cell\nprint('the needle is', needle_{number} is not None)"]
                told = [event async for event in agent.stream(f"Is there a needle_{number}?")]
                ends = [event for event in told if isinstance(event, ActionFinished)]
                answers += "the needle is True" in ends[-1].observation
                events += told
            model.steps = [f"cell\n{STATE}"]
            told = [event async for event in agent.stream("State?")]
            state = next(event.observation for event in told if isinstance(event, ActionFinished))
    return Run(events=events, sent=sent, model=model, state=state, answers=answers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--tasks", type=int, default=24)
    given = parser.parse_args()
    small = asyncio.run(run(given.window, given.tasks))
    whole = asyncio.run(run(None, given.tasks))
    summaries = [event.summary for event in small.compactions if event.summary]
    share = small.model.sent / whole.model.sent
    digest = hashlib.sha256(small.state.encode()).hexdigest()[:12]
    goals = [
        (
            f"compactions: {len(small.compactions)}, of these {len(summaries)} with a summary",
            len(small.compactions) >= COMPACTIONS,
        ),
        (f"questions about variables answered: {small.answers} of {given.tasks}", small.answers == given.tasks),
        (f"variables and files at the end as without compaction ({digest})", small.state == whole.state),
        (f"effects: {len(small.sent)}, repeated: {len(small.sent) - len({*small.sent})}", small.sent == whole.sent),
        (f"characters sent: {share:.0%} of those without compaction", share <= SHARE),
        (f"largest request: {small.model.largest:,} characters (without: {whole.model.largest:,})", True),
        (
            "every summary has its sections",
            all(name in text for text in summaries for name in SECTIONS) and bool(summaries),
        ),
    ]
    for words, held in goals:
        print(f"{'ok    ' if held else 'MISSED'}  {words}")
    return 0 if all(held for _, held in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
