"""Finds tools by everyday words, and shows how to call them. Starts no server."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from operator import is_
from os.path import commonprefix

import msgspec
from msgspec import Struct

from pinfold.events import Json
from pinfold.text import cap_text, join_names, printable_line
from pinfold.tools.stubs.forms import Form, bare_call, form_of, short_call
from pinfold.tools.stubs.modules import argument_lines, first_sentence, local_name, tools_by_name
from pinfold.tools.stubs.schema_types import as_list, as_object
from pinfold.tools.stubs.shapes import module_names
from pinfold.tools.tool import AnyTool

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_NOT_IN_NAMES = re.compile(r"[\W_]+")
_PATH = re.compile(
    r"(?<![\w/])(?:~|\.\.?)?/\w[\w./-]*|\b[\w-]{1,80}\.(?:txt|md|csv|json|py|log|pdf|docx?|xlsx?|ya?ml|toml|html?)\b"
)
_TO_A_PERSON = re.compile(r"\b[Ww]r(?:ite|ote) (?:to )?(?:me\b|us\b|[A-Z])")
_TO_ME = re.compile(r"\btell (?:me|us)\b", re.IGNORECASE)
_GRAMMAR = """
a an the this that some any its my your it me i we you and or of in on at by to for from into with as about up
is am are be can do how what which who please want need use
"""
_PASSING = """
these those all each every both other others such same own mine us our ours yours he him his she her hers
they them their theirs there here but nor if so out off over than then too also only just been being was were does did
done has have had could will would shall should may might must when where why not no yes ok let like now again well else
very many much more most few less least first last next one two per while before after
"""
GRAMMAR = frozenset(_GRAMMAR.split())
PASSING = GRAMMAR | frozenset(_PASSING.split())
"""Stop words."""


def stems_of(text: str) -> frozenset[str]:
    return frozenset(map(stem_of, WORD.findall(text)))


def squash_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("", name).lower()


def is_slip(one: str, other: str) -> bool:
    """True if the words differ by one missing, wrong or extra letter, or by two swapped ones."""
    short, long = sorted((one, other), key=len)
    if len(short) < 4 or len(long) - len(short) > 1 or short[0] != long[0]:
        return False
    at = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    is_swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return short[at + 1 :] == long[at + 1 :] or is_swapped


@lru_cache(20_000)
def stem_of(word: str) -> str:
    """Remove English endings: `queries`, `querying` and `query` have one stem, as have `deletion` and `deletes`."""
    word = word.lower()
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ation", "ing", "ion", "ed", "er"):
        if word.endswith(ending) and len(word) - len(ending) > 2:
            word = word[: -len(ending)]
            if ending == "ation":
                word += "at"
            elif word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    word = word.removesuffix("e")
    return f"{word[:-1]}i" if word.endswith("y") and len(word) > 3 else word


MEANS = {
    stem: tools
    for tools, people in {
        "send message": "tell inform notify text ping",
        "message": "mail email",
        "directory": "folder",
        "create": "make add new open",
        "delete": "remove erase drop",
        "update": "change edit modify rename close assign",
        "write": "save store",
        "get": "show display view read",
        "search": "find look",
        "post": "share announce publish",
        "issue": "bug ticket",
        "price": "cost cheap expensive worth",
        "event": "meeting appointment schedule",
        "amount currency": "money euro dollar",
        "distance": "far",
        "order": "buy purchase",
        "pull request": "pr",
        "transfer": "move",
        "forecast": "weather",
        "user": "who whom whose people person",
        "shipment": "arrive parcel deliver",
    }.items()
    for stem in map(stem_of, people.split())
}
"""Synonyms: from the stem of a user's word to the words that tools use."""


def meant_by(text: str) -> Iterator[str]:
    """Yield words that tools use for the words of a message."""
    for word in WORD.findall(_TO_ME.sub("", text)):
        yield from MEANS.get(stem_of(word), "").split()
    if path := _PATH.search(text):
        yield "file" if "." in path[0].strip("./") else "directory"
    if _TO_A_PERSON.search(text):
        yield from ("send", "message")


LIMIT = 8
_IDENTIFIER = re.compile(r"[A-Za-z]+(?:_[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+")
_SENTENCE_END = re.compile(r"[.:!]\s+|\n+")
_MANY = 3
"""Number of tools from which on sentences that all descriptions of a server share are dropped."""
_CLAUSE = re.compile(r"[,:;(]| - ")
_QUERY_CHARS = 400
_QUERY_WORDS = 24
_MESSAGE_CHARS = 4_000
_MESSAGE_WORDS = 200
_TELLING = 0.22
"""Least score for a suggestion with a message, as a share of the score of a word that only one tool has."""
_FITTING = 0.3
"""Least score for a suggestion with a message, as a share of the best score."""
_AGAIN = 3.0
"""Factor for tools of a server that was used before."""
_ASKED = 1.6
"""Factor for tools that only read, if the message is a question."""
_TEXT_CHARS = 2_000
_PARAMETERS = 40
_PARAMETER_CHARS = 160
_VALUES = 20
_DETAIL_CHARS = 800
_SERVERS = 20

# The weight of a word by where it occurs.
_NAME, _SERVER, _SENTENCE, _TEXT, _PARAMETER, _PARAMETER_TEXT = 5.0, 3.0, 2.0, 0.7, 1.0, 0.3
_SATURATION = 1.6
_PART = 0.5
"""Factor for a word that only starts the same: `repo`, `repository`."""
_SAME_FORM = 0.5
"""Added for the exact form of a word: a search for `issues` means more than one."""
_MEANT = 0.5
"""Factor for a synonym of a searched word."""
_LIKE = 0.3
"""Factor for a word of similar spelling."""
_EXACT = 1e9
"""The score of a tool that is searched by its name."""
_FULL = 4
"""Hits shown with types; the others show the names of required arguments only."""
_LEAST = 3
"""Hits to show even if their scores are poor: the best one may be the wrong one."""
_RELATED = 0.4
"""Least score to be shown, as a share of the best score."""
_ELSEWHERE = 0.6
"""Factor for tools of servers other than the named one."""
_DOMINANT = 2.0
"""A first hit that scores this many times the second is shown in detail."""


class _Entry(Struct, frozen=True):
    tool: AnyTool
    identifier: str
    module: str

    @property
    def form(self) -> Form:
        return form_of(self.tool, self.identifier)

    @property
    def path(self) -> str:
        return f"{self.module}.{self.identifier}"


def search(words: str, tools: Iterable[AnyTool], limit: int = LIMIT) -> list[str]:
    """Return the best matching tools, each as a line that suffices to call it. Caches the index of the last tools."""
    given = tuple(tools)
    if not _last or len(_last[0][0]) != len(given) or not all(map(is_, _last[0][0], given)):
        _last[:] = [(given, Index(given))]
    return _last[0][1].search(words, limit)


_last: list[tuple[tuple[AnyTool, ...], Index]] = []


class Index:
    """The words of many tools, indexed at the first search."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        self._tools = tuple(tools)
        self._modules = module_names(list(dict.fromkeys(tool.server for tool in self._tools)))
        self._entries: list[_Entry] = []
        self._named: dict[str, list[int]] = {}
        self._postings: dict[str, dict[int, float]] = {}
        self._vocabulary: list[str] = []
        self._forms: list[str] = []

    def search(self, words: str, limit: int = LIMIT) -> list[str]:
        """Return the best matches. Never empty: without a match, a line says so and lists the servers."""
        if not self._entries:
            self._read()
        asked = words[:_QUERY_CHARS]
        scores = self._scores(asked)
        exact = self._named.get(squash_name(asked), [])
        scores |= dict.fromkeys(exact, _EXACT)
        if len(WORD.findall(asked)) > 1 and exact:  # a single word may be a name or just a topic
            scores = dict.fromkeys(exact, _EXACT)
        ranked = sorted(scores, key=lambda at: -scores[at])[: max(limit, 1)]
        if not ranked:
            return [self._describe_no_match(asked)]
        least = _RELATED * max((score for score in scores.values() if score < _EXACT), default=0.0)
        related = [at for at in ranked if scores[at] >= least]
        told = ranked[: max(len(related), _LEAST)]
        full = related[:_FULL]
        lines = [self._line(at, short_call if at in full else bare_call) for at in told]
        if len(told) == 1 or scores[told[0]] >= _DOMINANT * scores[told[1]]:
            details = "\n".join(f"    {line}" for line in argument_lines(self._entries[told[0]].form))
            lines[0] = f"{self._line(told[0], short_call)}\n{cap_text(details, _DETAIL_CHARS)}".rstrip("\n")
        return lines

    def fitting(self, text: str, limit: int, *, without: Collection[str] = (), used: Collection[str] = ()) -> list[str]:
        """Return lines of tools that may help with a message; empty if none shares a rare enough word with it.

        Tools of servers in `used` score higher, since a conversation tends to stay with its subject.
        """
        if not self._entries:
            self._read()
        said = text[:_MESSAGE_CHARS]
        scores = self._scores(said, most=_MESSAGE_WORDS)
        asks = said.rstrip().endswith("?")
        for at in scores:
            tool = self._entries[at].tool
            if tool.server in used:
                scores[at] *= _AGAIN
            if asks and tool.effect == "pure":
                scores[at] *= _ASKED
        least = max(_TELLING * self._rarity(1), _FITTING * max(scores.values(), default=0.0))
        # A server's name scores low as a word, because all its tools share it; so a message with the name counts here.
        stems = stems_of(said)
        named = {server for server, module in self._modules.items() if set() < stems_of(module) <= stems}
        best = [at for at in scores if scores[at] >= least or self._entries[at].tool.server in named]
        best.sort(key=lambda at: (-scores[at], at))
        with_sources = dict.fromkeys(one for at in best for one in (at, *self._named_by(at)))
        lines = (self._hint(at) for at in with_sources)
        return list(islice((line for line in lines if line not in without), limit))

    def _named_by(self, at: int) -> list[int]:
        """Return tools named in this tool's description: mostly they provide values for its arguments."""
        tool = self._entries[at].tool
        told = [tool.description[:_TEXT_CHARS], *(description for _, description, _ in _parameters(tool))]
        words = set(_IDENTIFIER.findall(" ".join(told)))
        return [
            other
            for other, entry in enumerate(self._entries)
            if other != at and entry.tool.server == tool.server and local_name(entry.tool) in words
        ]

    def _read(self) -> None:
        by_server: dict[str, list[AnyTool]] = {}
        for tool in self._tools:
            by_server.setdefault(tool.server, []).append(tool)
        for server, tools in by_server.items():
            module = self._modules[server]
            for identifier, tool in tools_by_name(_in_own_words(tools)).items():
                own = squash_name(local_name(tool))
                for one in {own, squash_name(module) + own, squash_name(server) + own} - {""}:
                    self._named.setdefault(one, []).append(len(self._entries))
                self._entries.append(_Entry(tool, identifier, module))
        for at, entry in enumerate(self._entries):
            for word, weight in _weights(entry).items():
                self._postings.setdefault(word, {})[at] = weight
        self._vocabulary = sorted(word for word in self._postings if word[0] != "=")
        self._forms = [word for word in self._postings if word[0] == "="]

    def _scores(self, asked: str, most: int = _QUERY_WORDS) -> dict[int, float]:
        given = [word.lower() for word in WORD.findall(asked)][:most]
        kept = [word for word in given if word not in PASSING] or given
        stems = {stem_of(word): (word, 1.0) for word in kept}
        for word in meant_by(asked):
            stems.setdefault(stem_of(word), (word, _MEANT))
        together = {stem_of(first + second) for first, second in pairwise(kept)} & self._postings.keys()
        scores: dict[int, float] = {}
        covered: dict[int, float] = {}
        whole = 0.0
        for stem, (word, share) in stems.items():
            found = self._weights_of(stem, word)
            for at, weight in self._postings.get(f"={word}", {}).items():
                found[at] = found.get(at, 0.0) + _SAME_FORM * weight
            rarity = share * self._rarity(len(found))
            if found or stem not in MEANS:  # a word unknown to tools is covered by its synonyms
                whole += rarity
            for at, weight in found.items():
                scores[at] = scores.get(at, 0.0) + rarity * weight / (_SATURATION + weight)
                covered[at] = covered.get(at, 0.0) + rarity * min(1.0, weight)
        for stem in together:
            for at, weight in self._postings[stem].items():
                scores[at] = scores.get(at, 0.0) + self._rarity(1) * weight / (_SATURATION + weight)
        meant = {module for module in self._modules.values() if stems_of(module) <= stems.keys()}
        for at in scores:
            if meant and self._entries[at].module not in meant:
                scores[at] *= _ELSEWHERE
            scores[at] *= 0.25 + 0.75 * covered.get(at, whole) / whole if whole else 1.0
        return scores

    def _rarity(self, count: int) -> float:
        return math.log(1 + (len(self._entries) - count + 0.5) / (count + 0.5))

    def _weights_of(self, stem: str, word: str) -> dict[int, float]:
        """Return the weights of a word by tool: of the word, of longer and shorter ones, else of similar spellings."""
        found = dict(self._postings.get(stem, {}))
        others = [one for one in self._alike(stem) if one != stem]
        share = _PART
        if not found and not others:
            others, share = [form for form in self._forms if is_slip(word, form[1:])], _LIKE
        for one in others:
            for at, weight in self._postings[one].items():
                found[at] = max(found.get(at, 0.0), share * weight)
        return found

    def _alike(self, stem: str) -> list[str]:
        if len(stem) < 3:
            return []
        start = bisect_left(self._vocabulary, stem)
        longer = [word for word in self._vocabulary[start : start + 50] if word.startswith(stem)]
        if stem in self._postings:
            return longer
        shorter = [stem[:end] for end in range(3, len(stem)) if stem[:end] in self._postings]
        return [*longer, *shorter[-1:]]

    def _hint(self, at: int) -> str:
        """Return a short line, since every request repeats it: without a comment that only repeats the call's words."""
        entry = self._entries[at]
        call = short_call(entry.form, entry.path)
        clause = _CLAUSE.split(first_sentence(entry.tool.description), maxsplit=1)[0].rstrip()
        return f"{call}  # {clause}" if _says_more(clause, call, PASSING) else call

    def _line(self, at: int, show: Callable[[Form, str], str]) -> str:
        entry = self._entries[at]
        call, sentence = show(entry.form, entry.path), first_sentence(entry.tool.description)
        known = f"{local_name(entry.tool)} {entry.tool.server}"
        return f"{call}  # {sentence}" if _says_more(sentence, known, GRAMMAR) else call

    def _describe_no_match(self, asked: str) -> str:
        counts = Counter(entry.module for entry in self._entries)
        servers = [f"{name} ({counts[name]})" for name in self._modules.values()]
        if not servers:
            return "there are no other tools"
        what = f"no tool fits {printable_line(asked[:80])!r}" if asked.strip() else "search for words of a task"
        return f"{what}; there are servers {join_names(servers, _SERVERS)}; print(servers.NAME.__doc__) lists the tools of one"


def _in_own_words(tools: Sequence[AnyTool]) -> list[AnyTool]:
    """Drop sentences that all descriptions of a server begin with, since they distinguish nothing."""
    shared = commonprefix([tool.description for tool in tools])  # noqa: RUF071 - these are no paths
    ends = [match.end() for match in _SENTENCE_END.finditer(shared)]
    if len(tools) < _MANY or not ends or any(len(tool.description) <= ends[-1] for tool in tools):
        return list(tools)
    return [msgspec.structs.replace(tool, description=tool.description[ends[-1] :]) for tool in tools]


def _weights(entry: _Entry) -> Mapping[str, float]:
    tool = entry.tool
    weights: dict[str, float] = {}
    sentence = first_sentence(tool.description)
    for text, weight in ((local_name(tool), _NAME), (tool.server, _SERVER), (sentence, _SENTENCE)):
        _count(weights, text, weight, forms=True)
    parameters = list(_parameters(tool))
    names = " ".join(word[:100] for name, _, values in parameters for word in (name, *values))
    texts = " ".join(description for _, description, _ in parameters)
    for text, weight in ((tool.description[len(sentence) :], _TEXT), (names, _PARAMETER), (texts, _PARAMETER_TEXT)):
        _count(weights, text[:_TEXT_CHARS], weight)
    return weights


def _parameters(tool: AnyTool) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, description and allowed values of each parameter; bounded."""
    properties = as_object(as_object(tool.schema.parameters).get("properties"))
    for name, schema in islice(properties.items(), _PARAMETERS):
        said = as_object(schema)
        text: Json = said.get("description")
        values = [value for value in as_list(said.get("enum"))[:_VALUES] if isinstance(value, str)]
        yield str(name), text[:_PARAMETER_CHARS] if isinstance(text, str) else "", values


def _count(weights: dict[str, float], text: str, weight: float, *, forms: bool = False) -> None:
    for word in set(WORD.findall(text)):
        for term in (stem_of(word), f"={word.lower()}") if forms else (stem_of(word),):
            weights[term] = weights.get(term, 0.0) + weight


def _says_more(sentence: str, known: str, nothing: Collection[str]) -> bool:
    """True if the sentence has more than one word not in `known`. Words in `nothing` do not count."""
    said = {stem_of(word) for word in WORD.findall(sentence) if word.lower() not in nothing}
    return len(said - stems_of(known)) > 1
