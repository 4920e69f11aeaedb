"""`pinfold config set|get|path|edit`: comments stay, only what is right is written, and it is said where."""

from __future__ import annotations

import contextlib
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.app import ConfigError, load_config
from pinfold.app.config.settings import all_keys, config_file, set_value

pytestmark = pytest.mark.integration
Pinfold = Callable[..., Any]
TEXT = """\
# mine
[run]   # limits
# about steps
max_steps = 12  # a dozen

[models.aliases]
fast = "gpt-5-mini"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_text(TEXT)
    path.chmod(0o640)
    return path


def test_a_key_is_set_in_its_place_and_all_else_stays(file: Path) -> None:
    change = set_value("run.max_steps", "30")
    assert (change.path, change.line, change.before, change.after) == (file, 4, 12, 30)
    assert file.read_text() == TEXT.replace("12", "30")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    set_value("run.max_steps", None)
    assert "max_steps" not in file.read_text()
    assert set_value("run.max_steps", None).before is None
    file.unlink()
    assert set_value("data.shop.url", "sqlite:////tmp/shop.db").line == 2
    assert file.read_text() == '[data.shop]\nurl = "sqlite:////tmp/shop.db"\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("model.name", "builtin", "builtin"),
        ("model.name", "7", "7"),
        ("model.temperature", "0.5", 0.5),
        ("model.cache", "false", False),
        ("network.allow", "a.org, b.org", ["a.org", "b.org"]),
        ("network.allow", '["a.org"]', ["a.org"]),
        ("models.aliases.big", "gpt-5", "gpt-5"),
        ("model.extra", "{top_a = 1}", {"top_a": 1}),
        ("run.mode", "full", "full"),
    ],
)
def test_a_value_has_the_type_of_its_key(file: Path, key: str, text: str, value: object) -> None:
    set_value(key, text)
    found: Any = tomllib.loads(file.read_text())
    for part in key.split("."):
        found = found[part]
    assert found == value
    assert load_config().config


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("run.max_step", "3", "did you mean 'run.max_steps'?"),
        ("max_steps", "3", "did you mean 'run.max_steps'?"),
        ("quirk", "3", "`pinfold config show` lists them"),
        ("run.max_steps", "many", "run.max_steps cannot be 'many': Expected `int`"),
        ("run.max_steps", "0", "must be more than 0"),
        ("run.mode", "wild", "one of read-only, ask, auto, full"),
        ("data.shop", "x", "write data.NAME.KEY"),
        ("data.shop.url", "nonsense", "data.shop.url"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(file: Path, key: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?").replace("`", "`")):
        set_value(key, text)
    assert file.read_text() == TEXT


@given(st.sampled_from(all_keys()), st.text(max_size=12))
def test_whatever_is_set_the_file_still_loads(key: str, text: str) -> None:
    with contextlib.suppress(ConfigError):
        set_value(key, text)
    load_config()
    config_file().unlink(missing_ok=True)


def test_the_command_says_where_and_what_goes_before_it(
    pinfold: Pinfold, file: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINFOLD_RUN_MAX_STEPS", "9")
    done = pinfold("config", "set", "run.max_steps", "8")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        f"{file}, line 4: run.max_steps = 8",
        "pinfold: PINFOLD_RUN_MAX_STEPS also sets run.max_steps, and takes precedence",
    ]
    assert pinfold("config", "get", "run.max_steps").out == "9\n"
    assert pinfold("config", "path").out == f"{file}\n"
    refused = pinfold("config", "set", "--project", "model.name", "x")
    assert (refused.code, "a project may not set model.name" in refused.err) == (2, True)
    assert not (workspace / "pinfold.toml").exists()
    assert pinfold("config", "set", "--project", "run.max_steps", "5").code == 0
    assert (workspace / "pinfold.toml").read_text() == "[run]\nmax_steps = 5\n"
    kept = file.read_text()
    monkeypatch.setenv("EDITOR", "sed -i s/max_steps/max_stepz/")
    broken = pinfold("config", "edit")
    aside = file.with_name("config.toml.broken")
    assert (broken.code, len(broken.err.splitlines())) == (2, 1)
    assert f"your version is in {aside}" in broken.err
    assert (file.read_text(), aside.read_text()) == (kept, kept.replace("max_steps", "max_stepz"))
    monkeypatch.setenv("EDITOR", "sed -i s/dozen/few/")
    assert pinfold("config", "edit").code == 0
    assert file.read_text() == kept.replace("dozen", "few")
