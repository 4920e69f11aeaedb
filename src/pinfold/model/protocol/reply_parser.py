"""Finds tool calls in a reply's text. Accepts the many ways models write them, and ignores everything else.

Parsing never executes anything and never raises. It visits each position of the text a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.events import Call, Finish, ToolSchema, new_action_id
from pinfold.model.protocol import code_blocks
from pinfold.model.protocol.call_formats import calls_in, find_meant_tool, tag_at, unreadable_call
from pinfold.model.protocol.code_blocks import OPENING, WITHIN_A_LINE, Fence, fence_at, holds
from pinfold.model.protocol.known_tools import QUOTES, Effort, Fault, KnownTools, ParsedCall
from pinfold.model.protocol.lenient_json import Place, Unreadable, value_at

Kind: TypeAlias = Literal["quote", "fence", "tag", "object", "call"]

_QUOTE = re.compile(r"^ {0,3}+>[^\n]*+(?:\n {0,3}+>[^\n]*+)*+", re.MULTILINE)
_TAG = re.compile(
    r"<(?P<tag>tool_call|function_call|tool_use|tool)(?P<attributes>(?:[ \t=:][^<>\n]{0,200}+)?+)>", re.IGNORECASE
)
_OBJECT = re.compile(rf"(?:\[\s*+)?+\{{\s*+(?:[{QUOTES}][^{QUOTES}\n]{{1,64}}+[{QUOTES}]|[A-Za-z_]\w{{0,63}}+)\s*+:")
_CALL = re.compile(
    r"^[ \t]*+`{0,2}+(?P<call>\[?+[ \t]*+(?:(?:functions|tools|default_api)\.)?+(?P<name>[A-Za-z_]\w{0,80}+)[ \t]*+\()",
    re.MULTILINE,
)
_IN_PROSE: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("quote", _QUOTE),
    ("fence", OPENING),
    ("fence", WITHIN_A_LINE),
    ("tag", _TAG),
    ("object", _OBJECT),
    ("call", _CALL),
)
_IN_BLOCK = _IN_PROSE[3:]
_THOUGHT = re.compile(r"\s*+<think(?:ing)?+>", re.IGNORECASE)
_END_OF_THOUGHT = re.compile(r"</think(?:ing)?+>", re.IGNORECASE)
_END_ALONE = re.compile(r"^[ \t]*+</think(?:ing)?+>[ \t]*+\r?+$", re.IGNORECASE | re.MULTILINE)


class Marks:
    """Finds starts of quotes, fences, tags, objects and calls in order. Each pattern scans the text once."""

    def __init__(self, text: str, stop: int, where: Literal["prose", "block"]) -> None:
        self._text, self._stop = text, stop
        self._patterns = _IN_PROSE if where == "prose" else _IN_BLOCK
        self._ahead: list[re.Match[str] | None] = []

    def next(self, at: int) -> tuple[Kind, re.Match[str]] | None:
        if not self._ahead:
            self._ahead = [pattern.search(self._text, at, self._stop) for _, pattern in self._patterns]
        first: tuple[Kind, re.Match[str]] | None = None
        for number, (kind, pattern) in enumerate(self._patterns):
            mark = self._ahead[number]
            if mark and mark.start() < at:
                mark = self._ahead[number] = pattern.search(self._text, at, self._stop)
            if mark and (first is None or mark.start() < first[1].start()):
                first = kind, mark
        return first


def after_thoughts(text: str) -> int:
    """Return where the reply starts after the model's reasoning: calls in the reasoning are not meant to run."""
    if opening := _THOUGHT.match(text):
        end = _END_OF_THOUGHT.search(text, opening.end())
        return end.end() if end else len(text)
    # Some servers put the opening tag into the prompt.
    if "</think" not in text:
        return 0
    end = _END_ALONE.search(text)
    return end.end() if end else 0


_MARKS = re.compile(r"^[ \t]*+(?:>++[ \t]?+)++", re.MULTILINE)
_TRIES = 100
"""Occurrences to check; text that occurs more often is treated as quoted."""


def _normal(text: str) -> str:
    """Remove Markdown quote marks and normalize whitespace."""
    return " ".join((_MARKS.sub("", text) if ">" in text else text).split())


def _stands_in(wanted: str, text: str) -> bool:
    """True if `wanted` occurs as whole words: `x` does not occur in `example`."""
    at = -1
    for _ in range(_TRIES):
        at = text.find(wanted, at + 1)
        if at < 0:
            return False
        before, after = text[at - 1 : at], text[at + len(wanted) : at + len(wanted) + 1]
        if not (_joins(before, wanted[0]) or _joins(wanted[-1], after)):
            return True
    return True


def _joins(left: str, right: str) -> bool:
    return bool(left and right) and all(char.isalnum() or char == "_" for char in (left, right))


MOST_CALLS = 64
"""Maximum per reply: a model that writes more repeats itself."""
LOOKED_AT = 1_000_000
"""Calls are searched for only in this many characters; the last call may extend beyond."""
OUTPUT = "Output of {}"
"""Prefix of a tool's result in the prompt. A model that writes it has made the result up."""
MADE_UP = "You wrote the output of {} yourself: nothing was run. Write the call, and wait for its output."
QUOTED = (
    "The code is quoted from the user and was not run. "
    'To run it write <tool name="{}">, the {}, </tool>; else answer in words.'
)
_RUNNABLE = re.compile(r"(?:```|~~~)[ \t]*+py|<tool", re.IGNORECASE)
_TOOL_FIRST = re.compile(r"(?:\s*+#[^\n]*+\n)*+\s*+\[?+\s*+(?:(?:functions|tools|default_api)\.)?+(?P<name>\w++)\s*+\(")
_OF_OUTPUT = re.compile(r"\b(?:outputs?\b|prints?\b|printed\b|returns?\b|results?[ \t]*+[:=])", re.IGNORECASE)
_NEAR = 200
_NOTATIONS = ("{", "[", "<")
_ENDS_A_CALL = re.compile(r"[ \t`;,.]*+(?:\r?+\n|\Z)")
_WORD = re.compile(r"<[^<>\n]{0,80}+>|\[[A-Z_]{1,30}+\]|\w")


class ParsedReply(Struct, frozen=True, kw_only=True):
    """The calls in a reply's text, or what is wrong with them."""

    calls: tuple[Call, ...] = ()
    correction: str = ""
    """Message for the model: which call could not be read, and how to write it."""
    unreadable: bool = False
    """A call was clearly meant, but none could be read."""


def parse_reply(
    text: str, tools: Sequence[ToolSchema], *, quoted: Sequence[str] = (), finish: Finish = "stop"
) -> ParsedReply:
    """Parse the calls in `text`, in order. `quoted` is what the user wrote: code repeated from it is not a call."""
    if not tools:
        return ParsedReply()
    return _Reader(text, tools, quoted, finish).read()


def is_code_only(code: str, known: KnownTools) -> bool:
    """True if `code` in a fenced block would be parsed as exactly this code, and not as another kind of call."""
    if code.lstrip().startswith(_NOTATIONS) or not holds(code):
        return False
    first = _TOOL_FIRST.match(code)
    return first is None or first["name"] not in known


class _Reader:
    def __init__(self, text: str, tools: Sequence[ToolSchema], quoted: Sequence[str], finish: Finish) -> None:
        self._text = text
        self._finish: Finish = finish
        self._known = KnownTools(tools)
        self._quoted = quoted
        self._effort = Effort()
        self._wanted: list[ParsedCall] = []
        self._faults: list[str] = []
        self._repeated: list[ParsedCall] = []
        """Calls that only repeat what the user wrote."""

    def read(self) -> ParsedReply:
        self._scan(after_thoughts(self._text), len(self._text), "prose")
        calls = tuple(Call(id=new_action_id(), tool=call.tool, args=dict(call.args)) for call in self._wanted)
        is_lost = bool(self._faults) and not calls
        return ParsedReply(calls=calls, correction=self._correction(), unreadable=is_lost)

    def _correction(self) -> str:
        if self._faults:
            return self._faults[0]
        if self._wanted:
            return ""
        if made_up := self._find_invented_output():
            return MADE_UP.format(made_up)
        if not self._repeated:
            return ""
        tool = self._repeated[0].tool
        return QUOTED.format(tool, "code" if tool == self._known.python else "arguments as JSON")

    def _find_invented_output(self) -> str | None:
        """Return the tool whose invented output the reply begins with, if any."""
        start = after_thoughts(self._text)
        line = self._text[start : start + _NEAR].lstrip().partition("\n")[0]
        return next((name for name in self._known.names if line.startswith(f"{OUTPUT.format(name)}:")), None)

    @cached_property
    def _user(self) -> list[str]:
        return [_normal(text) for text in self._quoted]

    def _is_quoted(self, content: str) -> bool:
        """True if the user wrote exactly this."""
        wanted = _normal(content) if self._quoted else ""
        return bool(wanted) and any(_stands_in(wanted, text) for text in self._user)

    @property
    def _found(self) -> int:
        return len(self._wanted) + len(self._faults) + len(self._repeated)

    def _scan(self, start: int, stop: int, place: Place) -> None:
        marks = Marks(self._text, min(stop, start + LOOKED_AT), place)
        at = start
        while self._found < MOST_CALLS and self._effort.step():
            mark = marks.next(at)
            if mark is None:
                return
            match mark:
                case "quote", match:
                    end = self._blockquote(match)
                case "fence", match:
                    end = self._fence(match, stop)
                case "tag", match:
                    end = self._tag(match, stop)
                case "object", match:
                    end = self._object(match, stop, place)
                case "call", match:
                    end = self._line(match, stop)
            at = max(end, at + 1)

    def _take(
        self, calls: Sequence[ParsedCall | Fault], source: str, *, form: Literal["tag", "other"] = "other"
    ) -> None:
        """Record the calls, separating those that only repeat the user's words. `source` is their text."""
        is_quoted = self._is_quoted(source)
        for call in calls[: MOST_CALLS - self._found]:
            if isinstance(call, Fault):
                self._faults.append(call.words)
                continue
            repeats = is_quoted
            code = call.args.get("code") if call.tool == self._known.python else None
            # In a tag, code is meant to run unless the user wrote the tag too.
            if isinstance(code, str) and form == "other":
                repeats = self._is_quoted(code) and not code_blocks.calls_nothing(code, self._effort)
            (self._repeated if repeats else self._wanted).append(call)

    def _blockquote(self, match: re.Match[str]) -> int:
        if self._known.python and _RUNNABLE.search(match.group()):
            self._repeated.append(ParsedCall(self._known.python, {}))
        return match.end()

    def _fence(self, match: re.Match[str], stop: int) -> int:
        fence = fence_at(self._text, match, stop, self._effort)
        if fence is None:
            return match.end("run")
        if not fence.body.strip():
            return fence.end
        match fence.language:
            case "python":
                if not self._calls_of_block(fence):
                    self._code(fence.body)
            case "calls":
                if not self._calls_of_block(fence) and not fence.body.lstrip().startswith(_NOTATIONS):
                    self._scan(fence.start, fence.stop, "block")
            case "bare":
                if not self._calls_of_block(fence) and self._is_meant_to_run(fence.body, match.start()):
                    self._code(fence.body)
            case "other":
                pass
        return fence.end

    def _code(self, body: str) -> None:
        if self._known.python:
            self._take([ParsedCall(self._known.python, {"code": body})], body)

    def _is_meant_to_run(self, body: str, start: int) -> bool:
        """True if a block without a language is code, and the line before does not call it output."""
        before = self._text[max(0, start - _NEAR) : start].rstrip().rpartition("\n")[2]
        return not _OF_OUTPUT.search(before) and code_blocks.is_code(body, self._effort)

    def _calls_of_block(self, fence: Fence) -> bool:
        """Record calls written in a block as JSON, tags or Python calls of tools; return True if there are any."""
        before = self._found
        if fence.body.lstrip().startswith(_NOTATIONS):
            self._scan(fence.start, fence.stop, "block")
        first = _TOOL_FIRST.match(fence.body)
        if self._found == before and first and first["name"] in self._known:
            calls = code_blocks.calls_of(fence.body, self._known, self._effort)
            # Arguments that are not literals make it ordinary code.
            if all(isinstance(call, ParsedCall) for call in calls) or fence.language == "calls":
                self._take(calls, fence.body)
        return self._found > before

    def _tag(self, match: re.Match[str], stop: int) -> int:
        tag = tag_at(self._text, match, stop, self._known, finish=self._finish, effort=self._effort)
        source = self._text[match.start() : tag.end]
        self._take(tag.calls, source, form="tag" if tag.explicit else "other")
        return tag.end

    def _object(self, match: re.Match[str], stop: int, place: Place) -> int:
        start = match.start()
        if self._effort.json_chars < 0:
            return match.end()
        try:
            found = value_at(self._text, start, stop, place=place, effort=self._effort)
        except Unreadable as error:
            if self._text[start] == "{":
                self._unreadable(start, stop, error)
            return start + 1
        calls = calls_in(found.value, self._known, "perhaps", self._effort)
        if not calls or (place == "prose" and self._is_mentioned(start, found.end)):
            return found.end
        if found.mended:
            calls = [self._check_args(call) for call in calls]
        self._take(calls, self._text[start : found.end])
        return found.end

    def _check_args(self, call: ParsedCall | Fault) -> ParsedCall | Fault:
        """Reject a call from repaired JSON if it has arguments that the tool does not have."""
        if isinstance(call, Fault) or call.tool not in self._known:
            return call
        if call.args.keys() <= set(self._known.properties(call.tool)):
            return call
        return self._known.fault(call.tool, "its JSON is broken")

    def _unreadable(self, start: int, stop: int, error: Unreadable) -> None:
        if tool := find_meant_tool(self._text, start, stop, self._known):
            self._take([unreadable_call(tool, error, self._known, self._finish)], "")

    def _is_mentioned(self, start: int, end: int) -> bool:
        """True if words precede and follow it on its line, so the text only mentions it."""
        before = self._text[max(0, start - _NEAR) : start].rpartition("\n")[2]
        behind = self._text[end : end + _NEAR].partition("\n")[0]
        return _is_words(before) and _is_words(behind)

    def _line(self, match: re.Match[str], stop: int) -> int:
        start = match.start("call")
        if match["name"] not in self._known:
            return match.end()
        bracket = start if self._text[start] == "[" else match.end() - 1
        end = code_blocks.bracket_end(self._text, bracket, stop, self._effort)
        if end is None or not _ENDS_A_CALL.match(self._text, end, stop):
            return match.end()
        source = self._text[start:end]
        calls = code_blocks.calls_of(source, self._known, self._effort)
        # `read_file(path)` only describes the tool; with a string among its arguments it is a call.
        described = '"' not in source and "'" not in source
        self._take([call for call in calls if isinstance(call, ParsedCall) or not described], source)
        return end


def _is_words(text: str) -> bool:
    return any(not word.group().startswith(("<", "[")) for word in _WORD.finditer(text))
