"""The answer form a prompt asks for: `@name[value]`, JSON with named keys, or one line.

Cautious: a prompt that does not clearly describe the form of the answer asks for none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

LACKS = "The answer is not in the form that was asked for"
"""Begins the correction the model gets."""
_LONGEST = 20_000
"""The most characters of a prompt that is searched for a form; a longer one holds data."""
_GIVEN_ALONG = re.compile(r"\n\n\[(?:Standard input|Attached )")
_BESIDE = re.compile(r"^\[stderr\]$", re.MULTILINE)
_VALUE = r"((?:[^\[\]\n]|\[[^\[\]\n]*\])*)"
_MARK = re.compile(rf"(?<![\w.])@+([^\W\d]\w*)\[{_VALUE}\]")
_MARKS = re.compile(rf"(?:\s*@[^\W\d]\w*\[{_VALUE}\]\s*[,;]?)+\s*")
_EITHER = re.compile(r"\]\W{0,3}\bor\b\W{0,3}@|\b(?:if|else|otherwise)\b[^.@\n]*@\w+\[", re.IGNORECASE)
"""The prompt offers alternative forms, depending on the result: none is required."""
_ANSWERING = re.compile(r"\b(?:format|form|answer|output|respond|reply|print|return|report)\b", re.IGNORECASE)
_UNFILLED = re.compile(r"\s*(?:nan|NaN|None|null|NaT|\.\.\.)?\s*|.*(?:\bnp\.\w+\(|\bdtype\b|object at 0x).*")
_DECIMALS = re.compile(r"\b(\d|one|two|three|four|five|six)[ -]decimal", re.IGNORECASE)
_COUNTS = ("zero", "one", "two", "three", "four", "five", "six")
_NUMBER = (
    r"""["'`“”]*\s+(?:is|should be|must be)\s+an?\s+"""
    r"""(?:(?:positive|negative|non-negative|floating[- ]point|decimal|real|whole|rounded)\s+)*(?:number|integer|float)\b"""
)
_VERB = r"\b(?:answer|reply|respond|return|output|print|give|provide|report|format)\b"
_NAMES = r"""((?:["'`][^"'`\n]+["'`]|(?!and\b)\w+)(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+)(?:["'`][^"'`\n]+["'`]|\w+))*)(?=\s*(?:[.;:)(]|$))"""
_KEYED = re.compile(
    rf"{_VERB}[^\n]*?\b(?:as|in|with|a|an|only|be|return|output|print|give|provide|report)\s+(?:(?:a|an|one|valid|single|compact)\s+)*"
    r"JSON(?:\s+(?:object|dict|dictionary|format|only))*[\s,:]+"
    r"(?:(?:with|having|containing|whose|and|the|exactly|only|these|following|two|three|four|\d)\s+)*"
    rf"(?:keys?|fields?|properties)\b(?:\s+are)?[\s:]+{_NAMES}",
    re.IGNORECASE | re.MULTILINE,
)
_SHOWN = re.compile(
    rf"{_VERB}[^\n{{]*?\b(?:format|form|like|like this|as|exactly|as JSON|JSON object)\b[^\w{{]*\n?\s*`*(?:json\n)?(\{{\s*\"[^{{}}]*\}})",
    re.IGNORECASE,
)
_KEY = re.compile(r'"([^"\n]+)"\s*:')
_QUOTED = re.compile(r"""["'`]([^"'`\n]+)["'`]|(\w+)""")
_INTO_FILE = re.compile(r"\b(?:save|file|(?:to|into|in|as)\s+\S+\.\w+)\b", re.IGNORECASE)
_ONE_LINE = re.compile(
    r"\b(?:answer|reply|respond|response|output|summari[sz]e)\b(?:(?!\b(?:each|every|per|code)\b)[^.\n])*?"
    r"\b(?:in|on|as|with|be|is)\s+(?:(?:exactly|only|just)\s+)?(?:one|a single|1)\s+line\b(?!\s+(?:of code|per|each|for))",
    re.IGNORECASE,
)
_MORE_TO_DO = re.compile(
    r"\b(?:save|export|plot|draw|upload|commit|rename|delete|chart)\b|"
    r"\b(?:write|create|update|make|edit|fix|add)\b[^.\n]{0,40}(?:\bfile\b|\w\.\w{2,4}\b|\bscript\b|\btest)",
    re.IGNORECASE,
)


@lru_cache(maxsize=16)
def asked_form(prompt: str) -> AskedForm | None:
    prompt = _GIVEN_ALONG.split(prompt, maxsplit=1)[0].replace("\\n", "\n")
    if len(prompt) > _LONGEST:
        return None
    if form := _marks(prompt):
        return form
    # Each pattern is tried only where it can match: in a long line of prose the search would take seconds.
    signs = prompt.lower()
    if ("json" in signs or "{" in signs) and (form := _keys(prompt)):
        return form
    return _OneLine() if " line" in signs and _ONE_LINE.search(prompt) else None


def wants_more(prompt: str) -> bool:
    """Return whether the prompt also wants something made, so that a printed answer may not be the end."""
    return _MORE_TO_DO.search(_MARK.sub("", prompt)) is not None


def stdout_of(observation: str, notices: Iterable[str] = ()) -> str:
    """Return what the cell itself printed, without stderr and Pinfold's own `notices`."""
    text = observation.rstrip()
    for notice in reversed([*notices]):
        text = text.removesuffix(f"[{notice}]").rstrip()
    return _BESIDE.split(text, maxsplit=1)[0].rstrip()


def json_in(text: str) -> str:
    """Return the JSON of an answer as written: the one fenced block in it, else all of it."""
    if "```" not in text:
        return text.strip()
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(text)
    fenced = [token.content for token in tokens if token.type == "fence" and token.info.strip() in ("", "json")]
    return (fenced[0] if len(fenced) == 1 else text).strip()


def parse_json(text: str) -> Any:
    """Parse strict JSON. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def last_object(output: str) -> str | None:
    """Return the JSON object at the end of an output, if it begins a line and no value is empty."""
    lines = output.rstrip().split("\n")
    start = next((place for place in range(len(lines) - 1, -1, -1) if lines[place].startswith("{")), None)
    if start is None:
        return None
    text = "\n".join(lines[start:])
    try:
        value = parse_json(text)
    except ValueError:
        return None
    filled = isinstance(value, dict) and all(one not in (None, "") for one in cast("dict[str, Any]", value).values())
    return text if filled else None


class _Marks(NamedTuple):
    places: dict[str, str]
    """The text in brackets in the prompt, by name."""
    numbers: frozenset[str]
    """Names whose value must be a number."""
    decimals: int | None

    @property
    def begins(self) -> str:
        """How every answer in this form begins; empty if that is not fixed."""
        return f"@{next(iter(self.places))}["

    def fault(self, answer: str) -> str:
        """Return one line that says what the answer lacks and repeats the form; empty if the answer fits."""
        found = dict(_MARK.findall(answer))
        faults = [why for name in self.places if (why := self._fault_of(name, found.get(name)))]
        form = " ".join(f"@{name}[{place}]" for name, place in self.places.items())
        return f"{LACKS}: {'; '.join(faults)}. Answer again in exactly this form: {form}" if faults else ""

    def _fault_of(self, name: str, value: str | None) -> str:
        if value is None:
            return f"@{name}[...] is missing"
        place = self.places[name]
        if _UNFILLED.fullmatch(value) or (value == place and not value.isnumeric()):
            return f"@{name} has no value"
        if name in self.numbers and not _is_number(value):
            return f"@{name} must be a number and is {value[:40]!r}"
        decimals = re.fullmatch(r"\s*-?[\d,]*\.(\d+)\s*", value)
        if self.decimals is not None and decimals and len(decimals[1]) > self.decimals:
            return f"@{name} must be rounded to {self.decimals} decimal places"
        return ""

    def find_printed(self, output: str) -> str | None:
        """Return the answer that code printed: the output or its last block; None if that is not exactly the form."""
        block = [*takewhile(_MARKS.fullmatch, reversed(output.rstrip().split("\n")))]
        text = "\n".join(reversed(block)).strip()
        names = sorted(name for name, _ in _MARK.findall(text))
        return text if names == sorted(self.places) and not self.fault(text) else None


class _Keys(NamedTuple):
    keys: tuple[str, ...]

    @property
    def begins(self) -> str:
        return f"{{{json.dumps(self.keys[0])}: "

    def fault(self, answer: str) -> str:
        again = f"Answer again with JSON alone, with the keys {', '.join(map(json.dumps, self.keys))}"
        try:
            value = parse_json(json_in(answer))
        except ValueError:
            return f"{LACKS}: it is not JSON. {again}"
        if not isinstance(value, dict):
            return f"{LACKS}: it is not a JSON object. {again}"
        missing = [json.dumps(key) for key in self.keys if key not in value]
        return f"{LACKS}: missing {', '.join(missing)}. {again}" if missing else ""

    def find_printed(self, output: str) -> str | None:
        text = last_object(output)
        return text if text is not None and {*parse_json(text)} == {*self.keys} else None


class _OneLine(NamedTuple):
    begins: str = ""

    def fault(self, answer: str) -> str:
        lines = len([line for line in answer.splitlines() if line.strip()])
        return f"{LACKS}: it has {lines} lines. Answer again in one line" if lines > 1 else ""

    def find_printed(self, output: str) -> None:
        """Return None: a printed line may be only a look at the data."""
        del output


AskedForm: TypeAlias = _Marks | _Keys | _OneLine


def _marks(prompt: str) -> _Marks | None:
    shown: dict[str, set[str]] = {}
    for name, place in _MARK.findall(prompt):
        shown.setdefault(name, set()).add(place)
    places = {name: " or ".join(sorted(all_)) for name, all_ in shown.items()}
    if not places or not _ANSWERING.search(_MARK.sub("", prompt)) or (len(places) > 1 and _EITHER.search(prompt)):
        return None
    numbers = {name for name, place in places.items() if place and re.search(rf"\b{re.escape(place)}{_NUMBER}", prompt)}
    counts = [_count(word) for word in _DECIMALS.findall(prompt)]
    return _Marks(places, frozenset(numbers), max(counts, default=None))


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _COUNTS.index(word.lower())


def _is_number(value: str) -> bool:
    try:
        float(value.replace(",", ""))
    except ValueError:
        return False
    return True


def _keys(prompt: str) -> _Keys | None:
    found = _KEYED.search(prompt)
    if found is not None:
        names = [quoted or bare for quoted, bare in _QUOTED.findall(found[1]) if bare != "and"]
    elif (found := _SHOWN.search(prompt)) is not None:
        names = _KEY.findall(found[1])
    else:
        return None
    start = prompt.rfind("\n", 0, found.start()) + 1
    end = prompt.find("\n", found.end())
    line = prompt[start : len(prompt) if end < 0 else end]
    return _Keys(tuple(dict.fromkeys(names))) if names and not _INTO_FILE.search(line) else None
