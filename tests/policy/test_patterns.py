"""What "always" would allow, and what a stored pattern then covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.events import CallTool, RunCell
from pinfold.policy import Facts, shell_facts
from pinfold.policy.rules import covers, pattern_of
from pinfold.policy.shell import read_script

pytestmark = [pytest.mark.unit, pytest.mark.installed]


def offered(command: str) -> str:
    facts, script = shell_facts(command)
    return pattern_of(CallTool(tool="shell", args={"command": command}), facts, script)


def covered(pattern: str, command: str) -> bool:
    facts, script = shell_facts(command)
    return covers(pattern, CallTool(tool="shell", args={"command": command}), facts, script)


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("git commit -m 'a b'", "shell: git commit *"),
        ("git add src/*.py", "shell: git add *"),
        ("mkdir -p build", "shell: mkdir *"),
        ("npm run build -- --watch", "shell: npm run build *"),
        ("pytest -x tests", "shell: pytest *"),
        ("python -m pytest -x", "shell: python -m pytest *"),
        ("rm build/a.txt", "shell: rm build/a.txt"),
        ("tar xf a.tar", "shell: tar xf a.tar"),
        ("cargo run 'a b'", "shell: cargo run 'a b'"),
    ],
)
def test_a_pattern_is_the_most_narrow_of_use(command: str, pattern: str) -> None:
    assert offered(command) == pattern
    assert covered(pattern, command)


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "python x.py",
        "python3 -c 'print(1)'",
        "bash x.sh",
        "bash -c 'git commit'",
        "env git commit",
        "xargs git add",
        "sudo git commit",
        "timeout 5 git commit",
        "find . -delete",
        "sed -i s/a/b/ f",
        "awk '{print > \"f\"}' f",
        "make test",
        "npx x",
        "ssh host ls",
        "curl https://x",
        "./configure",
        "node x.js",
        "eval ls > x",
        "git commit -m x > log",
        "git commit -m x && git push",
        "git commit -m $(cat m)",
        "git commit -m x | cat",
        "(git commit -m x)",
        "A=1 git commit",
        "git commit $FLAGS",
        "git add *",
        "$X commit",
        "rm -rf /",
        "rm *",
        "git commit -m x &",
        "! git commit -m x",
        "while true; do git commit -m x; done",
        "git commit -m " + "y" * 101_000,
    ],
    ids=lambda command: command[:30],
)
def test_there_is_no_always_for_what_runs_something_else_or_is_more_than_one_command(command: str) -> None:
    assert offered(command) == ""


@pytest.mark.parametrize(
    ("pattern", "command", "covers_it"),
    [
        ("shell: git commit *", "git commit", True),
        ("shell: git commit *", "git commit --amend", True),
        ("shell: git commit *", "git 'commit' -m x", True),
        ("shell: git commit *", "git commit -m x; rm y", False),
        ("shell: git commit *", "git commit -m x && ls", False),
        ("shell: git commit *", "git commit -m `rm x`", False),
        ("shell: git commit *", "git commit -m x >> ~/.bashrc", False),
        ("shell: git commit *", "git commit-tree x", False),
        ("shell: git commit *", "git push", False),
        ("shell: git commit *", "git -c core.editor=x commit", False),
        ("shell: git commit *", "GIT_EDITOR=x git commit", False),
        ("shell: git commit *", "./git commit", False),
        ("shell: rm build/a", "rm build/a", True),
        ("shell: rm build/a", "rm build/a b", False),
        ("shell: mkdir *", "mkdir /etc/x", False),
        ("shell: mkdir *", "mkdir ../x", False),
        # Nobody offers these, so nobody can have said yes to them.
        ("shell: *", "rm x", False),
        ("shell: rm *", "rm x", False),
        ("shell: bash *", "bash x", False),
        ("shell: git *", "git push", False),
        ("shell: python *", "python x.py", False),
        ("tool: shell", "rm x", False),
        ("", "rm x", False),
        ("shell: 'unclosed", "rm x", False),
    ],
)
def test_a_stored_pattern_covers_no_more_than_it_says(pattern: str, command: str, covers_it: bool) -> None:
    assert covered(pattern, command) is covers_it


def test_patterns_of_other_tools_name_the_tool_the_folder_the_host_or_the_package() -> None:
    tool = CallTool(tool="send", args={})
    assert pattern_of(tool, Facts(), None) == "tool: send"
    assert pattern_of(tool, Facts(reach="workspace", target="src/a.py"), None) == "edit: src/*"
    assert pattern_of(tool, Facts(reach="workspace", target="a.py"), None) == "edit: ./*"
    assert pattern_of(tool, Facts(reach="workspace", target="src/a.py\nsrc/b.py"), None) == "edit: src/*"
    assert pattern_of(tool, Facts(reach="network", target="a.org:443"), None) == "network: a.org:443"
    assert pattern_of(tool, Facts(reach="packages", target="polars"), None) == "install: polars"


@pytest.mark.parametrize(
    "facts",
    [
        Facts(reach="protected", target="AGENTS.md"),
        Facts(reach="host"),
        Facts(reach="workspace", target="../x"),
        Facts(reach="workspace", target="a/b\nc/d"),
        Facts(reach="workspace"),
        Facts(reach="network"),
        Facts(reach="packages"),
    ],
)
def test_there_is_no_always_for_the_host_protected_files_and_what_is_not_known(facts: Facts) -> None:
    tool = CallTool(tool="send", args={})
    assert pattern_of(tool, facts, None) == ""
    for pattern in ("", "tool: send", "edit: ./*", "edit: /*", "network: ", "install: "):
        assert not covers(pattern, tool, facts, None)


def test_an_edit_pattern_covers_its_folder_alone() -> None:
    tool = CallTool(tool="edit_file", args={})
    assert covers("edit: src/*", tool, Facts(reach="workspace", target="src/./b.py"), None)
    for other in ("src/sub/b.py", "b.py", "src2/b.py", "src/../b.py", "/src/b.py"):
        assert not covers("edit: src/*", tool, Facts(reach="workspace", target=other), None), other


def test_there_is_no_always_for_a_cell() -> None:
    assert pattern_of(RunCell(code="1"), Facts(), None) == ""


@given(
    st.text(max_size=40), st.sampled_from(["rm x; ls", "rm x && ls", "rm x > y", "python x", "sudo rm x", "bash -c ls"])
)
def test_no_stored_string_covers_what_has_no_pattern(pattern: str, command: str) -> None:
    for one in (pattern, f"shell: {pattern}", f"shell: {command}", f"shell: {pattern} *"):
        assert not covered(one, command)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git commit -m 'a b' ", ("git", "commit", "-m", "a b")),
        ('make "x y" src/*.py', ("make", "x y", "src/*.py")),
        *(
            (text, ())
            for text in (
                "git commit -m x; ls", "git commit -m \\\nrm", "a=b make", "make $X", "make \"$X\"", "make `x`", "make &", "make *",
                "make -*", "make {a,b}", "make ~", "make !x", "make # x", "make <x", "make $'x'", "make \\x", "make\nrm x",
                "make\rrm x", "'make", "make 'x", "", "if x", "f() x",
            )
        ),
    ],
)  # fmt: skip
def test_a_plain_command_is_known_by_its_characters_alone(command: str, words: tuple[str, ...]) -> None:
    assert read_script(command).plain == words
