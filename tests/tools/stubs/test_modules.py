"""A server's tools as a module: what `help`, `dir` and a call show of them."""

from __future__ import annotations

import inspect
import pydoc
import re
from typing import Any

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace
from tests.time_complexity import took_s
from tests.tools.stubs.guest import assert_only_declares, imported
from tests.tools.stubs.known_tools import known_tools, made

from pinfold.tools import Tool, tool
from pinfold.tools.stubs.modules import first_sentence, local_name, module_source, signature
from pinfold.tools.stubs.shapes import identifiers

pytestmark = pytest.mark.unit

ISSUE = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "title": {"type": "string"}, "parent": {"$ref": "#/$defs/Issue"}},
    "required": ["number", "title"],
}
LIST_ISSUES = made(
    "github.list_issues",
    "List the issues of a repository. The newest come first.\n\nNeeds a token.",
    {
        "type": "object",
        "properties": {
            "state": {"enum": ["open", "closed"], "default": "open", "description": "Which ones"},
            "owner": {"type": "string", "description": "Who owns\nthe repository"},
            "repo": {"type": "string"},
            "from": {"type": ["string", "null"], "description": "Date of the oldest"},
            "filter": {
                "type": "object",
                "properties": {
                    "labels": {"type": "array", "items": {"type": "string"}},
                    "mile-stone": {"type": "integer"},
                },
                "required": ["labels"],
            },
        },
        "required": ["owner", "repo"],
    },
    server="github",
    returns={"type": "array", "items": {"$ref": "#/$defs/Issue"}, "$defs": {"Issue": ISSUE}},
)
GET_ME = made("github.get-me", "", {"type": "object", "properties": {}}, server="github")


def test_a_module_reads_like_one_that_somebody_wrote() -> None:
    assert module_source("github", "Issues and code on GitHub.", [LIST_ISSUES, GET_ME]) == snapshot("""\
'Issues and code on GitHub.\\n\\nlist_issues: List the issues of a repository\\nget_me'
from typing import Any, Literal, NotRequired, TypedDict
from _pinfold_guest.servers import call as _call, OMITTED as _OMITTED

__all__ = ['list_issues', 'get_me']

def __dir__():
    return list(__all__)

ListIssuesFilter = TypedDict('ListIssuesFilter', {'labels': list[str], 'mile-stone': NotRequired[int]})
Issue = TypedDict('Issue', {'number': int, 'title': str, 'parent': NotRequired['Issue']})

def list_issues(owner: str, repo: str, state: Literal['open', 'closed'] = 'open', from_: str | None = _OMITTED, filter: ListIssuesFilter = _OMITTED) -> list[Issue]:
    "List the issues of a repository. The newest come first.\\n\\nNeeds a token.\\n\\nArgs:\\n    owner: Who owns the repository\\n    state: Which ones\\n    from_: Date of the oldest (sent as 'from')\\n    filter: {labels: list[str], 'mile-stone'?: int}\\n\\nReturns:\\n    list[{number: int, title: str, parent?: {number: int, title: str, parent?: dict}}]"
    return _call('github.list_issues', {'owner': owner, 'repo': repo, 'state': state, 'from': from_, 'filter': filter})

def get_me() -> Any:
    ''
    return _call('github.get-me', locals())
""")


def test_help_shows_one_tool_in_full() -> None:
    with imported(module_source("github", "", [LIST_ISSUES, GET_ME]), "servers.github") as (module, _):
        assert _help(module.list_issues) == snapshot(
            [
                "Python Library Documentation: function list_issues in module servers.github",
                "list_issues(owner: str, repo: str, state: Literal['open', 'closed'] = 'open', from_: str | None = ..., filter: servers.github.ListIssuesFilter = ...) -> list[servers.github.Issue]",
                "    List the issues of a repository. The newest come first.",
                "    Needs a token.",
                "    Args:",
                "        owner: Who owns the repository",
                "        state: Which ones",
                "        from_: Date of the oldest (sent as 'from')",
                "        filter: {labels: list[str], 'mile-stone'?: int}",
                "    Returns:",
                "        list[{number: int, title: str, parent?: {number: int, title: str, parent?: dict}}]",
            ]
        )
        assert _help(module.get_me) == snapshot(
            ["Python Library Documentation: function get_me in module servers.github", "get_me() -> Any"]
        )


def _help(thing: object) -> list[str]:
    """Its lines; from Python 3.13 on a long signature takes several."""
    text = pydoc.plain(pydoc.render_doc(thing))
    text = re.sub(r"\((\n.*?)\n\)", lambda found: f"({' '.join(found[1].split())})", text, flags=re.DOTALL)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_help_of_the_module_names_each_tool() -> None:
    with imported(module_source("github", "Issues on GitHub.", [LIST_ISSUES, GET_ME]), "servers.github") as (module, _):
        assert module.__doc__ == snapshot("""\
Issues on GitHub.

list_issues: List the issues of a repository
get_me\
""")
        shown = "\n".join(_help(module))
        assert "list_issues(owner: str, repo: str" in shown
        assert "TypedDict" not in shown


def test_inspect_sees_the_signature() -> None:
    with imported(module_source("github", "", [LIST_ISSUES, GET_ME]), "servers.github") as (module, _):
        assert str(inspect.signature(module.list_issues)) == snapshot(
            "(owner: str, repo: str, state: Literal['open', 'closed'] = 'open', from_: str | None = ..., filter: servers.github.ListIssuesFilter = ...) -> list[servers.github.Issue]"
        )
        assert str(inspect.signature(module.get_me)) == snapshot("() -> Any")
    assert signature(LIST_ISSUES, "list_issues") == snapshot(
        "list_issues(owner: str, repo: str, state: Literal['open', 'closed'] = 'open', from_: str | None = ..., filter: ListIssuesFilter = ...) -> list[Issue]"
    )


def test_dir_and_star_show_tools_and_nothing_else() -> None:
    with imported(module_source("github", "", [LIST_ISSUES, GET_ME])) as (module, _):
        assert dir(module) == ["get_me", "list_issues"]
        assert module.__all__ == ["list_issues", "get_me"]


def test_a_call_is_sent_under_the_names_that_the_tool_knows_and_without_what_was_not_given() -> None:
    with imported(module_source("github", "", [LIST_ISSUES, GET_ME])) as (module, calls):
        module.list_issues("me", repo="it", from_=None)
        module.list_issues("me", "it", "closed", filter={"labels": []})
        module.get_me()
    assert calls == [
        ["github.list_issues", {"owner": "me", "repo": "it", "state": "open", "from": None}],
        ["github.list_issues", {"owner": "me", "repo": "it", "state": "closed", "filter": {"labels": []}}],
        ["github.get-me", {}],
    ]


def test_a_call_that_does_not_fit_fails_before_it_is_sent() -> None:
    with imported(module_source("github", "", [LIST_ISSUES])) as (module, calls):
        with pytest.raises(TypeError, match="unexpected keyword argument 'owners'"):
            module.list_issues(owners="me", repo="it")
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'repo'"):
            module.list_issues("me")
    assert calls == []


def test_the_users_own_functions_are_tools_like_any_other() -> None:
    @tool(effect="pure")
    def convert(amount: float, to: str = "EUR", note: str | None = None) -> float:
        """Convert dollars.

        Args:
            amount: How many
        """
        return amount

    with imported(module_source("tools", "", [convert])) as (module, calls):
        module.convert(5)
        assert str(inspect.signature(module.convert)).startswith("(amount: float, to: str = 'EUR', note: str = ...)")
        assert "amount: How many" in module.convert.__doc__
    assert calls == [["convert", {"amount": 5, "to": "EUR"}]]


def test_every_known_tool_can_be_called_with_what_it_requires() -> None:
    tools = known_tools()
    called = 0
    for server in {one.server for one in tools}:
        own = [one for one in tools if one.server == server]
        names = identifiers([local_name(one) for one in own])
        source = module_source(server, "", own)
        assert assert_only_declares(source) == len(own)
        with imported(source) as (module, calls):
            for one in own:
                required: list[str] = one.schema.parameters["required"]
                getattr(module, names[local_name(one)])(*required)
                assert calls.pop() == [one.name, {name: name for name in required}]
                called += 1
    assert called == len(tools) > 130


def test_five_hundred_tools_are_a_small_module_that_is_made_at_once() -> None:
    tools = five_hundred()
    source = module_source("big", "", tools)
    assert len(source) < 500_000
    with imported(source) as (module, _):
        assert len(dir(module)) == 500
    assert min(took_s(lambda: _import(source)) for _ in range(3)) < 1  # 35 ms on a quiet machine


def five_hundred() -> list[Tool[..., Any]]:
    known = known_tools()
    return [replace(one, name=f"big.{local_name(one)}_{turn}", server="big") for turn in range(4) for one in known][
        :500
    ]


def _import(source: str) -> None:
    with imported(source):
        pass


def test_the_modules_own_text_stays_short_and_says_what_it_leaves_out() -> None:
    with imported(module_source("big", "word " * 5_000, five_hundred())) as (module, _):
        assert len(module.__doc__) < 15_000
        assert module.__doc__.endswith("and 400 more: servers.search('words') finds them")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("List issues. Newest first.", "List issues"),
        ("List issues\nof a repository.", "List issues of a repository"),
        ("Reads e.g. a file. And more.", "Reads e.g. a file"),
        ("Reads version 1.5 files. X", "Reads version 1.5 files"),
        ("Does things:\n- a\n- b", "Does things"),
        ("One\n\nTwo", "One"),
        ("", ""),
        ("word " * 100, "word " * 19 + "wo..."),
        ("Text\x1b[31m \u202ered", "Text\\x1b[31m \\u202ered"),
    ],
)
def test_the_first_sentence_says_what_a_tool_is_for(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_what_a_function_says_it_returns_is_told_where_it_is_plain() -> None:
    def counts(text: str) -> dict[str, int] | None: ...
    def nothing(text: str) -> None: ...
    def anything(text: str) -> Any: ...
    def something(text: str) -> Tool[..., Any]: ...
    def unsaid(text: str): ...  # pyright: ignore[reportUnknownParameterType]
    async def later(text: str) -> list[str]: ...

    functions: list[Any] = [counts, nothing, anything, something, unsaid, later]
    told = [signature(tool(one), "go").partition(" -> ")[2] for one in functions]
    assert told == ["dict[str, int] | None", "None", "Any", "Any", "Any", "list[str]"]
