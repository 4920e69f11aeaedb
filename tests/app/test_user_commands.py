"""Commands that users write: what is said to the model for one, and what never reaches it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.app.clients.user_commands import INCLUDED, fill_command, load_user_commands
from pinfold.app.errors import ConfigError
from pinfold.app.trust.project_files import read_project_files
from pinfold.app.trust.project_formats import FOLDER, UserCommand, parse_command
from pinfold.app.trust.workspace_trust import trust

pytestmark = pytest.mark.unit


def put(folder: Path, name: str, text: str) -> None:
    path = folder / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_the_front_matter_says_what_it_does_and_takes() -> None:
    command = parse_command(
        "review", b'---\r\ndescription: "Look at: a file"\nargument-hint: FILE\nother: [1]\n---\n\nReview $1.\n', "here"
    )
    assert command == UserCommand(name="review", text="Review $1.", words="Look at: a file", hint="FILE", origin="here")


@pytest.mark.parametrize(
    ("data", "text", "words"),
    [
        (b"# Tidy up\nAll of it.", "# Tidy up\nAll of it.", "Tidy up"),
        (b"---\ndescription: never closed", "---\ndescription: never closed", "---"),
        (b"\xff\xfe", "\ufffd\ufffd", "\ufffd\ufffd"),
        (b"", "", ""),
    ],
)
def test_without_front_matter_its_first_line_says_what_it_does(data: bytes, text: str, words: str) -> None:
    command = parse_command("x", data, "")
    assert (command.text, command.words) == (text, words)


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("Fix $ARGUMENTS now", "a b", "Fix a b now"),
        ("$1 then $2, not $3.", "'a b' c", "a b then c, not ."),
        ("$1", "it's", "it's"),
        ("No place", "more", "No place\n\nmore"),
        ("No place", "", "No place"),
        ("$10 and $ARGUMENTSX", "a", "$10 and $ARGUMENTSX\n\na"),
        ("$ARGUMENTS", "$1 $ARGUMENTS @a.txt", "$1 $ARGUMENTS @a.txt"),
        ("use @property, me@a.txt and @a.txt.", "", "use @property, me@a.txt and a.txt.\n\na.txt:\n```\none\n```"),
        (
            "(@sub/b.md) @a.txt @a.txt",
            "",
            "(sub/b.md) a.txt a.txt\n\nsub/b.md:\n````\n```\n````\n\na.txt:\n```\none\n```",
        ),
    ],
)
def test_each_place_is_filled_once(tmp_path: Path, text: str, arguments: str, said: str) -> None:
    (tmp_path / "a.txt").write_text("one\n", encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.md").write_text("```\n", encoding="utf-8")
    assert fill_command(UserCommand(name="x", text=text), arguments, tmp_path) == said


@given(arguments=st.text())
def test_arguments_are_never_taken_for_places(arguments: str) -> None:
    said = fill_command(UserCommand(name="x", text="<$ARGUMENTS>"), arguments, Path("/nowhere"))
    assert said == f"<{arguments}>"


@pytest.mark.safety
@pytest.mark.parametrize(
    "path",
    [
        "/etc/hostname",
        "../out.txt",
        "sub/../../out.txt",
        "link.txt",
        "far/out.txt",
        ".env",
        "key.pem",
        ".git/config",
        "pipe",
    ],
)
def test_a_file_is_included_from_the_workspace_only_and_never_a_secret(tmp_path: Path, path: str) -> None:
    workspace = tmp_path / "workspace"
    for folder in ("sub", ".git"):
        (workspace / folder).mkdir(parents=True)
    (tmp_path / "out.txt").write_text("outside", encoding="utf-8")
    (workspace / "link.txt").symlink_to("../out.txt")
    (workspace / "far").symlink_to(tmp_path)
    for secret in (".env", "key.pem", ".git/config"):
        (workspace / secret).write_text("secret", encoding="utf-8")
    os.mkfifo(workspace / "pipe")
    with pytest.raises(ConfigError, match="cannot be included"):
        fill_command(UserCommand(name="x", text=f"Read @{path}"), "", workspace)
    (workspace / "inside.txt").write_text("fine", encoding="utf-8")
    (workspace / "near.txt").symlink_to("inside.txt")
    assert "fine" in fill_command(UserCommand(name="x", text="Read @near.txt"), "", workspace)


def test_more_than_the_bound_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"x" * (INCLUDED * 2 // 3))
    fill_command(UserCommand(name="x", text="@a"), "", tmp_path)
    with pytest.raises(ConfigError, match="name fewer"):
        fill_command(UserCommand(name="x", text="@a @b"), "", tmp_path)


@pytest.mark.safety
def test_commands_of_a_folder_wait_for_trust_and_those_of_the_user_do_not(home: Path, workspace: Path) -> None:
    put(home, "mine.md", "Mine.")
    put(home, "both.md", "The user's.")
    put(home, "no command.md", "x")
    put(workspace, "both.md", "The folder's.")
    put(workspace, "theirs.md", "Theirs.")
    put(workspace, "deep/er.md", "x")
    found = load_user_commands(workspace)
    assert [*found.commands] == ["both", "mine"]
    assert found.commands["both"].text == "The user's."
    assert found.untrusted == ("both", "theirs")
    seen = read_project_files(workspace)
    assert [seen.describe_effects(file) for file in seen.files if "both" in file.name] == [
        ("adds a command: The folder's.",)
    ]
    trust(read_project_files(workspace))
    found = load_user_commands(workspace)
    assert [*found.commands] == ["both", "mine", "theirs"]
    assert found.commands["both"].text == "The folder's."
    put(workspace, "theirs.md", "Something else.")
    assert load_user_commands(workspace).untrusted == ("both", "theirs")


def test_what_cannot_be_read_is_said_and_leaves_the_others(home: Path, workspace: Path) -> None:
    put(home, "large.md", "x" * (1 << 20))
    put(home, "small.md", "x")
    found = load_user_commands(workspace)
    assert [*found.commands] == ["small"]
    assert found.faults == (f"{home / FOLDER / 'large.md'} is larger than 64 kB, too large for a command",)
