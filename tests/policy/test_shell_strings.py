"""Shell commands held against what they really do: what goes through unasked, what is foreseen, what counts as dangerous."""

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
CASES: list[tuple[str, str]] = [(text, group["kind"]) for group in STRINGS["group"] for text in group["strings"]]


def test_what_reads_is_allowed_and_what_harms_more_than_the_workspace_is_asked_about() -> None:
    wrong = [
        (text, mode, wanted, told["verdict"], told["reason"])
        for text, kind in CASES
        if kind != "writes"
        for mode, wanted in zip(MODES, STRINGS["verdicts"][kind], strict=True)
        if (told := explain(text, mode=mode))["verdict"] != wanted
    ]
    print(f"{len(CASES)} strings in {len(MODES)} modes, {len(wrong)} wrong")
    assert wrong == []


def test_what_writes_is_asked_about_or_held_to_reading() -> None:
    """What is not foreseen is enforced: `tests/app/test_read_only_commands.py` looks at the files."""
    writing = [text for text, kind in CASES if kind == "writes"]
    for mode in ("ask", "read-only"):
        told = [explain(text, mode=mode) for text in writing]
        free = [one for one in told if one["verdict"] == "allow" and not one["held_to_reading"]]
        foreseen = sum(one["verdict"] != "allow" for one in told)
        print(f"{mode}: {len(writing)} strings that write, {foreseen} foreseen, {len(free)} not held to reading")
        assert free == []
        assert foreseen >= 0.7 * len(writing)
    assert not any(explain(text, mode="auto")["held_to_reading"] for text in writing)


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


def test_everyday_commands_that_write_are_foreseen() -> None:
    writing = [text for source in EVERYDAY["source"] for text in source["writes"]]
    missed = [text for text in writing if explain(text, mode="ask")["verdict"] == "allow"]
    print(f"{len(writing)} everyday commands that write, {len(missed)} not foreseen")
    assert len(writing) >= 150
    assert len(missed) <= 0.03 * len(writing), missed


def test_the_seeds_lists_are_covered() -> None:
    for safe in ("ls", "cat f", "grep x f", "find . -name x"):
        assert explain(safe, mode="read-only")["verdict"] == "allow", safe
    for dangerous in ("rm f", "dd if=a of=b", "mkfs /dev/sda", "shutdown", "rm -rf /"):
        assert explain(dangerous, mode="ask")["verdict"] == "ask", dangerous
    for dangerous in ("dd if=a of=b", "mkfs /dev/sda", "shutdown", "rm -rf /", "cat /etc/passwd", "cat ~/.ssh/id_rsa"):
        assert explain(dangerous, mode="auto")["verdict"] == "ask", dangerous
