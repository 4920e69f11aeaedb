"""`pinfold policy explain`, as a user and as a script call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Ran

pytestmark = pytest.mark.integration
Pinfold = Callable[..., Ran]


def rules(tmp_path: Path, text: str) -> None:
    path = tmp_path / "xdg" / "config" / "pinfold" / "rules.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_one_json_object_says_verdict_reason_and_rule(pinfold: Pinfold) -> None:
    told = json.loads(pinfold("policy", "explain", "--json", "--", "ls && rm x").out)
    assert (told["verdict"], told["reason"], told["rule"]) == ("ask", "rm deletes files", "writes in the workspace")
    assert [command["command"] for command in told["commands"]] == ["ls", "rm x"]
    for mode, verdict in (("read-only", "deny"), ("auto", "allow"), ("full", "allow")):
        ran = pinfold("policy", "explain", "--mode", mode, "--json", "--", "rm x")
        assert (json.loads(ran.out)["verdict"], ran.code) == (verdict, 0)


def test_people_see_every_command_that_was_found(pinfold: Pinfold) -> None:
    ran = pinfold("policy", "explain", "--", "ls $(git push) > log")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "asked about in mode ask: git push may change files",
        "  reads   ls $(git push)",
        "  writes  git push",
        "          git push may change files",
        "  also    writes to log",
    ]
    assert "'always' would allow: shell: git commit *" in pinfold("policy", "explain", "git", "commit", "-m", "a b").out


def test_words_are_put_together_as_they_would_be_run(pinfold: Pinfold) -> None:
    assert "allowed" in pinfold("policy", "explain", "--", "echo", "a; rm x").out
    assert "asked about" in pinfold("policy", "explain", "--", "ls", "&&", "rm", "x").out
    listed = pinfold("policy", "explain", "ls", "-la").out
    assert "allowed" in listed
    assert "runs with all files read-only" in listed
    assert "read-only" not in pinfold("policy", "explain", "--mode", "auto", "ls", "-la").out


def test_escapes_in_a_command_do_not_reach_the_terminal(pinfold: Pinfold) -> None:
    ran = pinfold("policy", "explain", "--", "ls \x1b[2Kx \u202ey")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out


def test_the_users_rules_count_and_a_bad_file_is_one_clear_line(pinfold: Pinfold, tmp_path: Path) -> None:
    rules(tmp_path, '[[rule]]\nname = "no rm"\ncommand = ["rm"]\nverdict = "deny"\nreason = "use the bin"\n')
    told = json.loads(pinfold("policy", "explain", "--mode", "full", "--json", "--", "ls; rm x").out)
    assert (told["verdict"], told["reason"], told["rule"]) == ("deny", "use the bin", "no rm")
    rules(tmp_path, '[[rule]]\nname = "no rm"\ncommand = ["rm"]\nverdict = "deny"\nmatch = ["mv x y"]\n')
    ran = pinfold("policy", "explain", "--", "ls")
    assert ran.code == 2
    assert ran.err.strip().endswith("rules.toml: rule 'no rm': it does not match its example 'mv x y'")
    assert len(ran.err.strip().splitlines()) == 1


def test_no_command_is_a_usage_error(pinfold: Pinfold) -> None:
    assert pinfold("policy", "explain").code == 2
