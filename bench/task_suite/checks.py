"""Checkers. They take an answer in any wording, but not one that names the right thing among many others."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from bench.task_suite import png
from bench.task_suite.confine import without_network
from bench.task_suite.task import Check, Outcome

NUMBER = re.compile(r"(?<![\w.])[-\u2212]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?")
WHEN = re.compile(r"\b\d{4}-\d{2}-\d{2}\b|(?<!\d)\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?")
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SCRIPT_LIMIT_S = 20
LONGEST = 1000
"""Characters of an answer that may hold much besides what was asked for."""


def all_of(*checks: Check) -> Check:
    def check(outcome: Outcome) -> str | None:
        return next((why for part in checks if (why := part(outcome)) is not None), None)

    return check


# Numbers


def numbers_in(text: str) -> list[Decimal]:
    plain = WHEN.sub(" ", text.replace("{,}", ","))
    return [Decimal(found.replace(",", "").replace("\u2212", "-")) for found in NUMBER.findall(plain)]


def number(expected: float | str, *, within: float | str = 0, others: int = 4) -> Check:
    """The number, give or take `within`, and at most `others` that the question did not name."""
    wanted, slack = Decimal(str(expected)), Decimal(str(within)) + Decimal("1e-9")

    def check(outcome: Outcome) -> str | None:
        found, asked = numbers_in(outcome.answer), set(numbers_in(outcome.prompt))
        if not any(abs(one - wanted) <= slack for one in found) and not _spelled(wanted, outcome.answer):
            return f"{wanted} is not in the answer"
        rest = {one for one in found if abs(one - wanted) > slack} - asked
        return f"names {len(rest)} other numbers" if len(rest) > others else None

    return check


def _spelled(wanted: Decimal, answer: str) -> bool:
    """`one` is too common a word to count as an answer."""
    if wanted != int(wanted) or not 2 <= wanted < len(WORDS):
        return False
    return _named(WORDS[int(wanted)], answer)


# Words


def _named(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", text.casefold()) is not None


def _at(word: str, text: str) -> int:
    found = re.search(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", text.casefold())
    return found.start() if found else -1


def _rambles(outcome: Outcome) -> str | None:
    return "says far too much" if len(outcome.answer) > LONGEST else None


def name(expected: str, among: Sequence[str]) -> Check:
    """The one out of `among`. Another may be named after it, as a comparison; more is a list, not an answer."""

    def check(outcome: Outcome) -> str | None:
        if not _named(expected, outcome.answer):
            return f"{expected!r} is not in the answer"
        rest = [one for one in among if one != expected and _named(one, outcome.answer)]
        if len(rest) > 1:
            return f"names {len(rest)} others"
        if rest and _at(rest[0], outcome.answer) < _at(expected, outcome.answer):
            return f"names {rest[0]!r} first"
        return _rambles(outcome)

    return check


def names(expected: Sequence[str], but_not: Sequence[str] = ()) -> Check:
    def check(outcome: Outcome) -> str | None:
        missing = [one for one in expected if not _named(one, outcome.answer)]
        if missing:
            return f"{missing[0]!r} is not in the answer"
        extra = [one for one in but_not if _named(one, outcome.answer)]
        return f"{extra[0]!r} does not belong there" if extra else _rambles(outcome)

    return check


def sequence(expected: Sequence[str]) -> Check:
    """The words in this order, one after the other, as a list in a line or down the page."""
    between = r"(?:[\W\d_]|\band\b|\bthen\b)*"
    pattern = re.compile(rf"\b{between.join(re.escape(one) for one in expected)}\b", re.IGNORECASE)

    def check(outcome: Outcome) -> str | None:
        return _rambles(outcome) if pattern.search(outcome.answer) else f"{list(expected)} is not in the answer"

    return check


def exactly(text: str, *, longest: int = 400) -> Check:
    """The text itself, to the letter, in an answer that is not much longer."""

    def check(outcome: Outcome) -> str | None:
        if not re.search(rf"(?<!\w){re.escape(text)}(?!\w)", outcome.answer):
            return f"{text!r} is not in the answer"
        return "says far too much" if len(outcome.answer) > len(text) + longest else None

    return check


def reply(outcome: Outcome) -> str | None:
    """A few friendly words that took no action."""
    said = outcome.answer.strip()
    if not said or said == outcome.prompt:
        return "no reply"
    if outcome.actions:
        return f"ran {outcome.actions} pieces of code"
    if len(said) > 600 or "Traceback" in said or "```" in said:
        return "not what one says to a greeting"
    friendly = r"\b(hi|hello|hey|help|welcome|assist|greetings|good|morning|pleasure|nice|great|glad)\b"
    return None if re.search(friendly, said.casefold()) else "not a friendly reply"


# The clock


def the_time(outcome: Outcome) -> str | None:
    """In local time or UTC, to within a minute or so."""
    found = re.findall(r"(?<!\d)(\d{1,2}):(\d{2})(?::\d{2}(?:\.\d+)?)?\s*([ap]\.?m)?", outcome.answer.casefold())
    told = {(int(hour) % 12 + (12 if half[0] == "p" else 0) if half else int(hour), int(minute))
            for hour, minute, half in found}  # fmt: skip
    if len(told) > 2:
        return "names many times"
    began, ended = outcome.began - timedelta(minutes=1), outcome.ended + timedelta(minutes=1)
    steps = int((ended - began).total_seconds() // 20) + 1
    moments = [began + timedelta(seconds=20 * step) for step in range(steps + 1)]
    true = {(m.hour, m.minute) for at in moments for m in (at.astimezone(), at.astimezone(UTC))}
    return _rambles(outcome) if told & true else f"{sorted(told)} is not the time"


def _days(outcome: Outcome) -> set[date]:
    return {m.date() for at in (outcome.began, outcome.ended) for m in (at.astimezone(), at.astimezone(UTC))}


def the_date(outcome: Outcome) -> str | None:
    said = re.sub(r"(?<=\d)(st|nd|rd|th)\b", "", outcome.answer.casefold()).replace(",", " ")
    said = " ".join(said.split())
    if len(set(re.findall(r"\d{4}-\d{2}-\d{2}", said))) > 2:
        return "names many dates"
    for day in _days(outcome):
        shapes = ["%Y-%m-%d", "%d %B %Y", "%B %d %Y", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d %b %Y", "%b %d %Y"]
        shapes += ["%Y/%m/%d", "%d of %B %Y", "%d-%m-%Y"]
        texts = {day.strftime(shape).casefold() for shape in shapes}
        texts |= {re.sub(r"\b0(?=\d\b)", "", text) for text in texts}
        if any(re.search(rf"(?<!\d){re.escape(text)}(?!\d)", said) for text in texts):
            return _rambles(outcome)
    return "today's date is not in the answer"


def the_weekday(outcome: Outcome) -> str | None:
    tried = [name(WEEKDAYS[day.weekday()], WEEKDAYS)(outcome) for day in _days(outcome)]
    return None if None in tried else tried[0]


def days_from_today(count: Callable[[date], int]) -> Check:
    def check(outcome: Outcome) -> str | None:
        tried = [number(count(day))(outcome) for day in _days(outcome)]
        return None if None in tried else tried[0]

    return check


# Files


def file_is(file: str, content: str) -> Check:
    """To the byte, but for newlines at the very end."""

    def check(outcome: Outcome) -> str | None:
        path = outcome.workspace / file
        if not path.is_file():
            return f"there is no {file}"
        same = path.read_bytes().rstrip(b"\n") == content.encode().rstrip(b"\n")
        return None if same else f"{file} is not as it should be"

    return check


def csv_is(file: str, rows: Sequence[Sequence[object]]) -> Check:
    """The same cells in the same order; numbers may be written otherwise."""
    wanted = [[_cell(str(one)) for one in row] for row in rows]

    def check(outcome: Outcome) -> str | None:
        path = outcome.workspace / file
        if not path.is_file():
            return f"there is no {file}"
        text = path.read_text(encoding="utf-8", errors="replace")
        found = [[_cell(one) for one in row] for row in csv.reader(text.splitlines()) if row]
        return None if found == wanted else f"{file} holds other rows"

    return check


def _cell(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text.strip()


def script_prints(file: str, expected: str, *, with_files: Mapping[str, str] | None = None) -> Check:
    """Run again, the script prints this, whitespace aside; also where the files say something else."""

    def check(outcome: Outcome) -> str | None:
        script = outcome.workspace / file
        if not script.is_file():
            return f"there is no {file}"
        changed = {key: (outcome.workspace / key).read_bytes() for key in with_files or {}}
        for key, content in (with_files or {}).items():
            (outcome.workspace / key).write_text(content, encoding="utf-8")
        try:
            printed = _printed(script)
        finally:
            for key, before in changed.items():
                (outcome.workspace / key).write_bytes(before)
        if printed is None:
            return f"{file} fails or does not end"
        wanted = expected.split()
        return None if printed.split() == wanted else f"{file} prints {printed[:80]!r}"

    return check


def _printed(script: Path) -> str | None:
    command = [*without_network(), sys.executable, "-B", script.name]
    try:
        done = subprocess.run(
            command, cwd=script.parent, capture_output=True, text=True, timeout=SCRIPT_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def picture(file: str, colour: png.Colour | None = None) -> Check:
    """A PNG of a plausible size, in which something is drawn; with `colour`, in that colour."""

    def check(outcome: Outcome) -> str | None:
        path = outcome.workspace / file
        if not path.is_file():
            return f"there is no {file}"
        try:
            seen = png.read(path.read_bytes())
        except png.NotAPicture as bad:
            return f"{file}: {bad}"
        if not (100 <= seen.width <= 6000 and 100 <= seen.height <= 6000):
            return f"{file} is {seen.width} x {seen.height}"
        if seen.share(colour) < 0.0008:
            return f"{file} shows nothing{f' {colour}' if colour else ''}"
        return None

    return check


def now() -> datetime:
    return datetime.now(UTC)
