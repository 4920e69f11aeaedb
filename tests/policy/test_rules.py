"""The user's own rules: what loads, what is refused, and what they match."""

from __future__ import annotations

import pytest

from pinfold.events import CallTool
from pinfold.policy import RuleError, load_rules, read_script

pytestmark = [pytest.mark.unit, pytest.mark.installed]

GOOD = """
[[rule]]
name = "no pushing"
command = ["git", "push"]
verdict = "deny"
reason = "I push myself"
match = [
  "git push", "git push origin main", "cd x && git push", "git -C x push", "git -c a=b --no-pager push",
  "/usr/bin/git push", "g''it push", "bash -c 'git push'", "timeout 5 git push", "find . -exec git push \\\\;",
  "echo $(git push)", "sudo git push", "env A=1 git push", "ls | xargs git push", "unless -x git push; git push",
]
not_match = ["git pull", "git pushy", "echo git push", "git log push", "ls git push"]

[[rule]]
name = "globs"
command = "npm run lint*"
verdict = "allow"
match = ["npm run lint", "npm run lint:fix", "npm run lint -- --fix"]
not_match = ["npm run build", "npm install"]

[[rule]]
name = "mail to the team"
tool = "send_*"
args = { to = "*@example.org" }
verdict = "allow"
"""


def test_good_rules_load_and_their_examples_hold() -> None:
    assert [rule.name for rule in load_rules(GOOD).rules] == ["no pushing", "globs", "mail to the team"]
    assert load_rules("").rules == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rule]", "not valid TOML"),
        ("[rules]\n", "unknown key 'rules'"),
        ('rule = "x"', "double brackets"),
        ('[[rule]]\nverdict = "deny"\ncommand = ["x"]', "rule 1: Object missing required field `name`"),
        ('[[rule]]\nname = "a"\nverdict = "maybe"\ncommand = ["x"]', "rule 1: Invalid enum value 'maybe'"),
        ('[[rule]]\nname = "a"\nverdict = "deny"\ncomand = ["x"]', "rule 1: Object contains unknown field `comand`"),
        ('[[rule]]\nname = "a"\nverdict = "deny"', "rule 'a': give it either a command or a tool"),
        ('[[rule]]\nname = "a"\nverdict = "deny"\ntool = "x"\ncommand = ["y"]', "rule 'a': give it either"),
        ('[[rule]]\nname = "a"\nverdict = "allow"\ntool = "shell"', "rule 'a': to allow shell commands, say which"),
        ('[[rule]]\nname = "a"\nverdict = "deny"\ntool = "x"\nmatch = ["y"]', "use them with command"),
        (
            '[[rule]]\nname = "a"\nverdict = "deny"\ncommand = ["rm"]\nmatch = ["rmdir x"]',
            "rule 'a': it does not match its example 'rmdir x'",
        ),
        (
            '[[rule]]\nname = "a"\nverdict = "deny"\ncommand = "rm*"\nnot_match = ["rmdir x"]',
            "rule 'a': it matches 'rmdir x', which it should not",
        ),
    ],
)
def test_a_bad_file_says_which_rule_and_what_to_fix(text: str, words: str) -> None:
    with pytest.raises(RuleError) as error:
        load_rules(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value).replace(text, "")


def said(text: str, tool: str, args: object) -> str | None:
    action = CallTool(tool=tool, args=args)
    command = args.get("command") if isinstance(args, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    script = read_script(command) if isinstance(command, str) else None
    rule = load_rules(text).say(action, script)
    return rule.verdict if rule else None


def test_tools_are_matched_by_name_and_arguments() -> None:
    assert said(GOOD, "send_mail", {"to": "a@example.org"}) == "allow"
    assert said(GOOD, "send_mail", {"to": "a@example.org.evil"}) is None
    assert said(GOOD, "send_mail", {}) is None
    assert said(GOOD, "send_mail", None) is None
    assert said(GOOD, "resend_mail", {"to": "a@example.org"}) is None


def test_a_rule_for_all_tools_never_allows_the_shell_but_may_deny_it() -> None:
    everything = '[[rule]]\nname = "all"\ntool = "*"\nverdict = "{}"'
    assert said(everything.format("allow"), "shell", {"command": "rm x"}) is None
    assert said(everything.format("deny"), "shell", {"command": "ls"}) == "deny"


def test_the_strictest_rule_wins_whatever_the_order() -> None:
    yes = '[[rule]]\nname = "yes"\ncommand = ["make"]\nverdict = "allow"\n'
    no = '[[rule]]\nname = "no"\ncommand = ["make", "install"]\nverdict = "deny"\n'
    for text in (yes + no, no + yes):
        assert said(text, "shell", {"command": "make test"}) == "allow"
        assert said(text, "shell", {"command": "make install"}) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "make > out",
        "make; rm x",
        "make $(rm x)",
        "A=1 make",
        "make && sudo ls",
        "f() { make; }; f",
        "make (",
        "$X make",
    ],
)
def test_a_rule_that_allows_covers_all_of_a_script_or_nothing(command: str) -> None:
    yes = '[[rule]]\nname = "yes"\ncommand = ["make"]\nverdict = "allow"\n'
    assert said(yes, "shell", {"command": command}) is None
    assert said(yes, "shell", {"command": "make && ls | wc -l"}) == "allow"
    assert said(yes, "shell", {"command": "timeout 5 make"}) == "allow"
