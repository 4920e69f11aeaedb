"""Shell commands held against what they really do: every public bypass we know of, and what must go through unasked."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from pinfold.events import Mode
from pinfold.policy import explain, load_rules

pytestmark = [pytest.mark.safety, pytest.mark.installed]

HERE = Path(__file__).parent
STRINGS: dict[str, Any] = tomllib.loads((HERE / "shell_strings.toml").read_text("utf-8"))
EVERYDAY: dict[str, Any] = tomllib.loads((HERE / "everyday.toml").read_text("utf-8"))
MODES: tuple[Mode, ...] = get_args(Mode)
CASES: list[tuple[str, str]] = [
    (text, group["kind"]) for group in STRINGS["group"] for text in group["strings"]
]


def test_every_string_has_the_verdict_of_what_it_does_in_every_mode() -> None:
    wrong = [
        (text, mode, wanted, told["verdict"], told["reason"])
        for text, kind in CASES
        for mode, wanted in zip(MODES, STRINGS["verdicts"][kind], strict=True)
        if (told := explain(text, mode=mode))["verdict"] != wanted
    ]
    print(f"{len(CASES)} strings in {len(MODES)} modes, {len(wrong)} wrong")
    assert wrong == []


def test_nothing_that_writes_is_allowed_in_ask() -> None:
    writing = [text for text, kind in CASES if kind != "reads"]
    allowed = [text for text in writing if explain(text, mode="ask")["verdict"] == "allow"]
    print(f"{len(writing)} strings that write, {len(allowed)} allowed")
    assert len(CASES) >= 300
    assert len(writing) >= 300
    assert allowed == []


def weak_verdict(text: str) -> str:
    """The control: a list of safe first words, the way it is often done."""
    try:
        first = shlex.split(text)[:1]
    except ValueError:
        return "ask"
    return "allow" if first and first[0] in WEAK else "ask"


WEAK = {
    "ls",
    "cat",
    "grep",
    "find",
    "echo",
    "head",
    "tail",
    "sort",
    "uniq",
    "sed",
    "awk",
    "git",
    "cd",
    "true",
    "env",
    "time",
    "xargs",
}


def test_a_list_of_safe_first_words_lets_many_of_them_through() -> None:
    fooled = [text for text, kind in CASES if kind != "reads" and weak_verdict(text) == "allow"]
    print(f"the weak judge allows {len(fooled)}")
    assert len(fooled) >= 150


def test_a_deny_rule_holds_in_the_thousandth_command_of_a_chain() -> None:
    rules = load_rules('[[rule]]\nname = "no curl"\ncommand = ["curl"]\nverdict = "deny"')
    for joint in (" && ", "; ", " | ", "\n", " || ", " & ", " >/dev/null && "):
        for length in (1, 49, 50, 51, 1000):
            chain = joint.join(["ls"] * length + ["curl evil"])
            assert explain(chain, mode="full", rules=rules)["verdict"] == "deny", (joint, length)
    for before, after in (("(", ")"), ("{ ", "; }"), ("$(", ")"), ("bash -c '", "'"), ("timeout 5 ", "")):
        assert explain(f"{before}curl evil{after}", mode="full", rules=rules)["verdict"] == "deny"
    # More than is looked at is no way out either.
    too_much = "ls; " * 30_000 + "curl evil"
    assert explain(too_much, mode="full", rules=rules)["verdict"] == "deny"
    deep = "(ls; " * 60 + "curl evil" + ")" * 60
    assert explain(deep, mode="full", rules=rules)["verdict"] == "deny"
    assert explain("ls; " * 1000, mode="ask", rules=rules)["verdict"] == "allow"


def test_everyday_commands_that_only_read_are_seldom_asked_about() -> None:
    reading = [text for source in EVERYDAY["source"] for text in source["reads"]]
    asked = [text for text in reading if explain(text, mode="ask")["verdict"] != "allow"]
    print(
        f"{len(reading)} everyday commands that only read, {len(asked)} asked about ({len(asked) / len(reading):.1%})"
    )
    assert len(reading) >= 150
    assert len(asked) <= 0.05 * len(reading), asked


def test_everyday_commands_that_write_are_all_asked_about() -> None:
    writing = [text for source in EVERYDAY["source"] for text in source["writes"]]
    allowed = [text for text in writing if explain(text, mode="ask")["verdict"] == "allow"]
    print(f"{len(writing)} everyday commands that write, {len(allowed)} allowed")
    assert len(writing) >= 150
    assert allowed == []


def test_the_seeds_lists_are_covered() -> None:
    for safe in ("ls", "cat f", "grep x f", "find . -name x"):
        assert explain(safe, mode="read-only")["verdict"] == "allow", safe
    for dangerous in ("rm f", "dd if=a of=b", "mkfs /dev/sda", "shutdown", "rm -rf /"):
        assert explain(dangerous, mode="ask")["verdict"] == "ask", dangerous
    for dangerous in (
        "dd if=a of=b",
        "mkfs /dev/sda",
        "shutdown",
        "rm -rf /",
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
    ):
        assert explain(dangerous, mode="auto")["verdict"] == "ask", dangerous
