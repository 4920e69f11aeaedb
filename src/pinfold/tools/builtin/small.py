"""Tools that only compute or ask: the time, a to-do list, a question to the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, cast

from pinfold.events import Json
from pinfold.text import first_line
from pinfold.tools.builtin.calculator import calculator
from pinfold.tools.results import BadCall, Result
from pinfold.tools.tool import Tool, tool

ITEMS = 100
ITEM_CHARS = 500
_OFFSET = r"(?i)(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?(\d{2}))?"
_DONE = frozenset({"done", "completed", "complete", "finished", "x"})


def now_tool(clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Tool[..., Any]:
    @tool(effect="pure", reach="nothing", timeout_s=10.0, server="system")
    def now(tz: str | None = None) -> str:
        """Tell the date and time.

        Args:
            tz: A time zone such as Europe/Berlin, UTC or +02:00; by default the one of this machine.
        """
        at = clock().astimezone(None if tz is None else _zone(tz))
        name = str(at.tzinfo) if tz else at.tzname() or ""
        return f"{at.isoformat(timespec='seconds')} ({at:%A}, {name})"

    return now


def _zone(name: str) -> tzinfo:
    """By its name, its city, or its offset."""
    import zoneinfo
    from difflib import get_close_matches

    asked = name.strip().replace(" ", "_")
    if asked.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if offset := re.fullmatch(_OFFSET, name.strip()):
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if hours < 24 and minutes < 60:
            away = timedelta(hours=hours, minutes=minutes)
            return timezone(-away if offset[1] == "-" else away)
    zones = zoneinfo.available_timezones()
    fitting = [zone for zone in zones if zone.casefold() == asked.casefold()] or [
        zone for zone in zones if zone.rpartition("/")[2].casefold() == asked.casefold()
    ]
    if len(fitting) == 1:
        return zoneinfo.ZoneInfo(fitting[0])
    if not zones:
        raise BadCall("this machine has no table of time zones; give an offset such as +02:00")
    by_city = {zone.rpartition("/")[2]: zone for zone in sorted(zones)}
    near = get_close_matches(asked, [*by_city, *zones], n=1, cutoff=0.5)
    hint = by_city.get(near[0], near[0]) if near else "Europe/Berlin or +02:00"
    raise BadCall(f"no time zone is called {name[:60]!r}; did you mean {min(fitting, default=hint)}?")


def _todo(items: list[Any]) -> Result:
    if len(items) > ITEMS:
        raise BadCall(f"the list has {len(items)} items; {ITEMS} is the most")
    told = [_item(number, item) for number, item in enumerate(items, start=1)]
    lines = [f"[{'x' if done else ' '}] {text}" for text, done in told]
    lines.append(f"{sum(done for _, done in told)} of {len(told)} done" if told else "nothing to do")
    return Result(text="\n".join(lines), value=[{"text": text, "done": done} for text, done in told])


def _item(number: int, item: Json) -> tuple[str, bool]:
    match item:
        case str(text):
            marked = re.match(r"\s*(?:[-*]\s*)?\[([ xX])\]\s*", text)
            done = bool(marked and marked[1] in "xX")
            text = text[marked.end() :] if marked else text
        case Mapping():
            given = cast("Mapping[str, Json]", item)
            text = next((given[key] for key in ("text", "content", "task", "title", "step") if key in given), None)
            state = given.get("done", given.get("status", False))
            done = state is True or (isinstance(state, str) and state.casefold() in _DONE)
        case _:
            text, done = None, False
    if not isinstance(text, str) or not text.strip():
        raise BadCall(f'item {number} should be a text or {{"text": "...", "done": false}}')
    return first_line(text, ITEM_CHARS), done


_ITEM: Mapping[str, Json] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "done": {"type": "boolean"}},
    "required": ["text"],
}
_ITEMS: Mapping[str, Json] = {"type": "array", "items": {"anyOf": [{"type": "string"}, _ITEM]}}
todo: Tool[..., Any] = Tool(
    function=_todo,
    name="todo",
    server="system",
    description="Keep a list of what is to be done. Give the whole list each time, with what is done marked.",
    effect="pure",
    timeout_s=10.0,
    reach="nothing",
    parameters={
        "type": "object",
        "properties": {"items": _ITEMS},
        "required": ["items"],
        "additionalProperties": False,
    },
)


@tool(effect="pure", reach="nothing", server="system")
def ask_user(question: str, options: list[str] | None = None) -> str:
    """Ask the user what only they can know."""
    del options
    raise BadCall(f"nobody answered {first_line(question)!r}")


@tool(effect="pure", reach="nothing", server="system")
def answer(text: str) -> None:
    """Tell the user the result from code and end the turn, unless the code fails later on.

    Args:
        text: The answer, as the user shall read it.
    """
    del text  # the engine takes it from the record


def small_tools() -> Sequence[Tool[..., Any]]:
    return calculator, now_tool(), todo, ask_user, answer
