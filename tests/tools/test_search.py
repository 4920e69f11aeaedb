"""Tools found by the words of a task."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace
from tests.time_complexity import took_s
from tests.tools.stubs.known_tools import known_tools, made
from tests.tools.stubs.queries import QUERIES

from pinfold.events import Effect
from pinfold.tools import Tool
from pinfold.tools.search import Index, search
from pinfold.tools.stubs.modules import local_name

pytestmark = pytest.mark.unit

KNOWN = known_tools()


def _names(lines: list[str]) -> list[str]:
    return [line.partition("(")[0] for line in lines]


def test_the_tool_that_is_meant_is_among_the_first_three() -> None:
    index = Index(KNOWN)
    ranks = [(*_names(index.search(words)), meant).index(meant) for words, meant in QUERIES.items()]
    missing = [words for words, meant in QUERIES.items() if meant not in _names(index.search(words))[:3]]
    among_three = 1 - len(missing) / len(QUERIES)
    assert len(ranks) == len(QUERIES) > 130
    assert len(KNOWN) > 130
    # Measured: 0.98, and 0.89 in the first place.
    assert among_three >= 0.97, missing
    assert ranks.count(0) / len(ranks) >= 0.88


def test_a_hit_is_enough_to_call_the_tool() -> None:
    assert search("comment on an issue", KNOWN, limit=3) == snapshot(
        [
            "github.add_issue_comment(owner, repo, issue_number: int, body)",
            "github.get_issue_comments(owner, repo, issue_number: int, page?: int, perPage?: int)  # Get comments for a GitHub issue",
            "jira.jira_get_issue(issue_key)  # Get details of a specific Jira issue including its fields, comments and links",
        ]
    )


def test_a_tool_that_is_asked_for_by_name_is_told_with_its_parameters() -> None:
    told = search("github.create_branch", KNOWN)
    assert told == snapshot(
        [
            """\
github.create_branch(owner, repo, branch, from_branch?)  # Create a new branch in a GitHub repository
    owner: Repository owner
    repo: Repository name
    branch: Name for new branch
    from_branch: Source branch, defaults to the default branch\
"""
        ]
    )
    assert search("createBranch", KNOWN) == search("create_branch", KNOWN) == told


def test_one_word_that_is_a_name_does_not_hide_other_tools() -> None:
    first, *others = _names(search("query", KNOWN))
    assert first == "postgres.query"
    assert len(others) >= 2


def test_what_stands_out_is_told_in_detail_and_the_rest_by_name() -> None:
    first, *others = search("edit a file", KNOWN)
    assert first.startswith("filesystem.edit_file(path, edits: list[{oldText: str, newText: str}], dryRun?: bool)")
    assert "\n    dryRun: Preview changes" in first
    assert others
    assert all("\n" not in line and ": str" not in line for line in others)


def test_where_nothing_fits_it_says_so_and_names_the_servers() -> None:
    tools = [tool for tool in KNOWN if tool.server in ("git", "time")]
    (line,) = Index(tools).search("xylophone")
    assert line == snapshot(
        "no tool fits 'xylophone'; there are servers time (2), git (12); print(servers.NAME.__doc__) lists the tools of one"
    )
    (line,) = Index(tools).search(" ")
    assert line == snapshot(
        "search for words of a task; there are servers time (2), git (12); print(servers.NAME.__doc__) lists the tools of one"
    )
    assert search("anything", []) == snapshot(["there are no other tools"])


def test_words_that_are_spelled_nearly_right_or_shortened_still_find() -> None:
    for words in ("isues", "issuse", "repo", "dirs", "timezones", "screenshots", "fork repos"):
        assert not search(words, KNOWN)[0].startswith("no tool"), words
    assert _names(search("screen shot", KNOWN))[0] == "browser.browser_take_screenshot"


def test_the_limit_is_kept_and_answers_stay_short() -> None:
    examined = 0
    for words in QUERIES:
        lines = search(words, KNOWN)
        assert len(lines) <= 8
        assert sum(map(len, lines)) < 2_500
        assert len(search(words, KNOWN, limit=2)) <= 2
        examined += len(lines)
    assert examined > 400


def test_names_are_those_under_which_code_imports_the_tools() -> None:
    tools = [
        made(
            "my-server.import", "Bring things in.", {"type": "object", "properties": {"from": {}}}, server="my-server"
        ),
        made("search.go", "Take things out.", {"type": "object"}, server="search"),
    ]
    assert search("bring", tools) == ["my_server.import_(from_?)  # Bring things in\n    from_: (sent as 'from')"]
    assert search("take", tools) == ["search_.go()  # Take things out"]


def _many() -> list[Tool[..., Any]]:
    return [
        replace(one, name=f"{one.server}{turn}.{local_name(one)}", server=f"{one.server}{turn}")
        for turn in range(4)
        for one in KNOWN
    ][:500]


def test_the_same_tools_are_read_once() -> None:
    tools = _many()
    search("x", tools)
    again = took_s(lambda: [search("git status", list(tools)) for _ in range(5)])
    anew = took_s(lambda: [Index(tools).search("git status") for _ in range(5)])
    assert again < anew / 4


def _of(server: str, name: str, description: str, effect: Effect = "once") -> Tool[..., Any]:
    return replace(made(f"{server}.{name}", description, {}, server=server), effect=effect)


def test_a_server_that_a_message_names_is_told_of() -> None:
    tools = [
        _of("calendar", "list_events", "List events within a span of time", "pure"),
        _of("calendar", "delete_event", "Delete an event"),
        _of("calendar", "set_reminder", "Set a reminder for an event"),
        _of("drive", "list_folder", "List a folder", "pure"),
    ]
    told = Index(tools).fitting("What have I got in my calendars this afternoon?", 4)
    assert told[0].startswith("calendar.list_events(")
    assert all(line.startswith("calendar.") for line in told)


def test_for_a_question_tools_that_only_look_come_first() -> None:
    changes, looks = _of("bank", "erase_payees", "Payees"), _of("bank", "show_payees", "Payees", "pure")
    index = Index([*KNOWN, changes, looks])
    assert _names(index.fitting("My payees.", 2)) == ["bank.erase_payees", "bank.show_payees"]
    assert _names(index.fitting("My payees?", 2)) == ["bank.show_payees", "bank.erase_payees"]


def test_what_people_call_otherwise_is_found_all_the_same() -> None:
    tools = [
        _of("mail", "send_message", "Send a message to a person"),
        _of("agenda", "create_event", "Create an event"),
        _of("market", "get_price", "Get the current price", "pure"),
        _of("disk", "write_file", "Write a whole file"),
        _of("disk", "list_directory", "List a directory", "pure"),
    ]
    index = Index(tools)
    for said, meant in {
        "Tell Ben that I am late.": "mail.send_message",
        "Write to Ben: I am late.": "mail.send_message",
        "Schedule a meeting.": "agenda.create_event",
        "What does milk cost?": "market.get_price",
        "Save it as /notes/milk.txt": "disk.write_file",
        "Which notes are in /notes?": "disk.list_directory",
    }.items():
        assert _names(index.fitting(said, 1)) == [meant], said
    for said in ("How are you, and is all well there?", "Tell me how late it is."):
        assert index.fitting(said, 4) == [], said


def test_with_a_message_only_those_words_come_that_the_call_does_not_say() -> None:
    said = _of("agenda", "delete_event", "Delete an event, for you and for all others who were invited")
    more = _of("agenda", "list_events", "List what begins within a span, in the order of start times")
    assert Index([said]).fitting("Delete that event.", 1) == ["agenda.delete_event(**arguments)"]
    assert Index([more]).fitting("My events.", 1) == [
        "agenda.list_events(**arguments)  # List what begins within a span"
    ]
    assert (
        Index([said])
        .search("delete event")[0]
        .endswith("# Delete an event, for you and for all others who were invited")
    )


def test_what_all_tools_of_a_server_begin_with_is_not_told_of_each() -> None:
    about = "This tool belongs to the agenda, which keeps events. Tool description: "
    tools = [
        _of("agenda", name, about + words)
        for name, words in (("move", "Change when it is."), ("drop", "Call an event off."), ("find", "Look one up."))
    ]
    assert Index(tools).fitting("Call the event off", 1) == ["agenda.drop(**arguments)  # Call an event off"]
    two = Index(tools[:2]).fitting("Call the event off", 1)
    assert "This tool belongs to the agenda" in two[0]
