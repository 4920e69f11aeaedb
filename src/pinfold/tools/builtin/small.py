"""Tools that only compute or ask: the time, a question to the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from pinfold.text import first_line
from pinfold.tools.builtin.calculator import calculator
from pinfold.tools.results import BadCall
from pinfold.tools.tool import Tool, tool

_OFFSET = r"(?i)(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?(\d{2}))?"


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
    return calculator, now_tool(), ask_user, answer
