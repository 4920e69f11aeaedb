"""Names that a server chose, as Python writes them."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.tools.stubs.shapes import identifiers, module_names

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("list_issues", "list_issues"),
        ("listIssues", "listIssues"),
        ("browser__click", "browser__click"),
        ("list-issues", "list_issues"),
        ("issues.list", "issues_list"),
        ("issues/list!", "issues_list"),
        ("3d_render", "tool_3d_render"),
        ("import", "import_"),
        ("None", "None_"),
        ("match", "match"),
        ("list", "list_"),
        ("Any", "Any_"),
        ("locals", "locals_"),
        ("_call", "call"),
        ("__getattr__", "getattr__"),
        ("größe", "grosse"),
        ("sélection", "selection"),
        ("用户", "u7528u6237"),
        ("\u202eevil", "evil"),
        ("a\x00b\ud800c", "a_b_c"),
        ("", "tool"),
        ("---", "tool"),
        ("x" * 500, "x" * 64),
    ],
)
def test_a_name_becomes_an_identifier(name: str, identifier: str) -> None:
    assert identifiers([name]) == {name: identifier}


def test_names_that_become_alike_are_numbered_and_the_one_that_was_right_keeps_its_own() -> None:
    assert identifiers(["a-b", "a.b", "a_b"]) == {"a-b": "a_b_2", "a.b": "a_b_3", "a_b": "a_b"}


def test_the_order_in_which_names_come_does_not_matter() -> None:
    names = ["a-b", "a.b", "a_b", "list", "list_", "ünder", "under"]
    assert dict(identifiers(names)) == dict(identifiers(names[::-1]))


def test_what_is_taken_is_not_given_again() -> None:
    assert identifiers(["go"], taken=("go",)) == {"go": "go_"}
    assert module_names(["search", "2nd", "my-server"]) == {
        "search": "search_",
        "2nd": "server_2nd",
        "my-server": "my_server",
    }


@given(st.lists(st.text(max_size=20) | st.sampled_from(["a-b", "a_b", "a.b", "if", "if_", "__dir__"]), unique=True))
def test_whatever_the_names_are_the_identifiers_are_valid_public_and_unique(names: list[str]) -> None:
    found = identifiers(names)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    for identifier in found.values():
        assert identifier.isidentifier()
        assert identifier.isascii()
        assert not identifier.startswith("_")
        assert not keyword.iskeyword(identifier)


def test_many_names_that_are_alike_take_no_time() -> None:
    names = [f"a{chr(0x2000 + number % 40)}{'-' * (number // 40)}b" for number in range(5_000)]
    assert len(set(identifiers(names).values())) == len(set(names))
