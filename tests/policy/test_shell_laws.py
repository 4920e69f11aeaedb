"""Laws of reading shell commands: nesting hides nothing, and no text breaks the reader."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.time_complexity import took_s

from pinfold.policy import explain, read_script
from pinfold.policy.shell.script import BRACKETS, LONGEST

pytestmark = pytest.mark.safety

WRITERS = (
    "rm x",
    "touch x",
    "echo a > x",
    "mv a b",
    "tee x",
    "git push",
    "sed -i s/a/b/ f",
    "python x.py",
    "./x",
    "$X y",
)
READERS = ("ls", "cat f", "grep x f", "echo hello", "git status", "wc -l f", "head -5 f", "true", "pwd")
FORMS = (
    "{}",
    "({})",
    "{{ {}; }}",
    "! {}",
    "{} &",
    "{}; ls",
    "ls; {}",
    "ls && {}",
    "ls || {}",
    "ls | {}",
    "{} | cat",
    "ls\n{}",
    "{} 2>/dev/null",
    "{} # ls",
    "echo $({})",
    "echo `{}`",
    'echo "a $({}) b"',
    "x=$({})",
    "cat <({})",
    "cat <<E\n$({})\nE",
    "cat <<< $({})",
    "echo ${{x:-$({})}}",
    "if {}; then ls; fi",
    "if ls; then {}; fi",
    "if ls; then ls; else {}; fi",
    "while {}; do ls; done",
    "until ls; do {}; done",
    "for i in 1 2; do {}; done",
    "for i in $({}); do ls; done",
    "for ((i=0;i<2;i++)); do {}; done",
    "case x in x) {};; esac",
    "f() {{ {}; }}; f",
    "[ -f x ] && {}",
    "[[ -n $({}) ]]",
    "bash -c '{}'",
    "sh -c '{}'",
    "eval '{}'",
    "bash <<'E'\n{}\nE",
    "time {}",
    "coproc {}",
)
PREFIXES = (
    "timeout 5 ",
    "nice ",
    "env ",
    "command ",
    "xargs ",
    "nohup ",
    "stdbuf -o0 ",
    "time -p ",
    "setsid ",
    "exec ",
)


def nested(kernel: str, forms: list[str]) -> str:
    text = kernel
    for form in forms:
        if "'{}'" in form and "'" in text:
            continue
        if "`{}`" in form and ("`" in text or "\\" in text):
            continue
        text = form.format(text)
    return text


@settings(max_examples=600)
@given(st.sampled_from(WRITERS), st.lists(st.sampled_from(FORMS), max_size=4))
def test_a_command_that_writes_is_found_in_whatever_it_is_nested(writer: str, forms: list[str]) -> None:
    text = nested(writer, forms)
    assert not read_script(text).reads_only, text
    assert explain(text, mode="ask")["verdict"] != "allow"


@settings(max_examples=300)
@given(st.sampled_from(WRITERS[:5]), st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=4))
def test_a_command_that_writes_is_found_behind_others_that_run_it(writer: str, prefixes: list[str]) -> None:
    assert not read_script("".join(prefixes) + writer).reads_only


def test_the_same_nesting_of_what_only_reads_is_allowed() -> None:
    """The positive control: a reader that says no to everything would keep the laws above."""
    asked = {form for form in FORMS for reader in READERS if not read_script(form.format(reader)).reads_only}
    assert asked == {"f() {{ {}; }}; f", "coproc {}"}


@settings(max_examples=1000)
@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    script = read_script(text)
    if script.reads_only:
        assert not script.unparsed
        assert all(command.reads_only for command in script.commands)


@settings(max_examples=1500)
@given(st.text(alphabet=" \t\n;&|<>(){}[]$`'\"\\!#=*?~-arms01", max_size=30))
def test_no_mix_of_what_the_shell_cares_about_is_allowed_with_a_writer_in_it(text: str) -> None:
    script = read_script(text)
    assert explain(text, mode="ask")["verdict"] in ("allow", "ask")
    if script.reads_only:
        assert "rm" not in {command.name for command in script.commands}


@settings(max_examples=300)
@given(st.binary(max_size=80))
def test_bytes_of_any_kind_are_read_or_asked_about(data: bytes) -> None:
    read_script(data.decode("utf-8", "surrogateescape"))
    read_script(data.decode("latin-1"))


@pytest.mark.parametrize(
    "text",
    [
        "ls && " * 15_000 + "rm x",
        "ls; " * 20_000 + "rm x",
        "ls | " * 19_000 + "rm x",
        "ls >a && " * 10_000 + "rm x",
        "(" * 1_400,
        ")" * 1_400,
        "a) " * 1_400,
        "$(" * 1_400,
        "`ls " * 20_000,
        'echo "${x:-' * 1_400,
        "eval " * 19_000 + "rm x",
        "env " * 24_000 + "rm x",
        "if " * 33_000,
        "<<A " * 20_000,
        "'" * 99_999,
        "x" * (LONGEST + 1),
        "(" * (BRACKETS + 1),
        "ls " + "a " * 49_000 + "; rm x",
    ],
    ids=lambda text: f"{text[:12]!r} x {len(text)}",
)
def test_large_and_deep_texts_are_read_in_time_or_not_at_all(text: str) -> None:
    read_script.cache_clear()
    assert took_s(lambda: read_script(text)) < 10  # 0.5 s for the slowest on a quiet machine
    assert not read_script(text).reads_only


def test_a_command_of_200_characters_is_judged_in_about_a_millisecond() -> None:
    text = (
        'git log --oneline -20 | grep -v "fix" | sort | uniq -c | head -5 && find . -name "*.py" -exec grep -l foo {} + '
        '2>/dev/null; for f in src/*.py; do wc -l "$f"; done; echo "$(git rev-parse HEAD) ok"'
    )
    assert explain(text)["verdict"] == "allow"

    def judge() -> None:
        read_script.cache_clear()
        explain(text)

    assert min(took_s(judge) for _ in range(20)) < 0.02  # 0.6 ms on a quiet machine
