"""Configuration in layers, with origins, and with errors that say what to fix."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import asdict

from pinfold.app import ConfigError, config_schema, load_config
from pinfold.app.trust.project_files import read_project_files
from pinfold.app.trust.workspace_trust import trust
from pinfold.sandbox import Limits, default_memory

pytestmark = pytest.mark.unit


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    path.parent.mkdir(parents=True, mode=0o700)
    return path


def project(workspace: Path, text: str) -> None:
    """A project's own file, trusted as it is."""
    (workspace / "pinfold.toml").write_text(text)
    trust(read_project_files(workspace))


def test_flags_win_over_environment_over_project_over_user_file_over_defaults(
    user_file: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file.write_text("[run]\nmax_steps = 15\nmax_tokens = 900\nmax_seconds = 60\n[model]\ntemperature = 0.5\n")
    project(workspace, "[run]\nmax_steps = 12\nmax_tokens = 800\nmax_seconds = 50\n")
    for name in [name for name in os.environ if name.startswith("PINFOLD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PINFOLD_RUN_MAX_TOKENS", "700")
    monkeypatch.setenv("PINFOLD_RUN_MAX_SECONDS", "40")
    loaded = load_config(workspace, {"run.max_seconds": 30.0, "run.max_cost": None})
    assert {key: (value, Path(origin).name) for key, value, origin in loaded.rows() if origin != "default"} == {
        "model.temperature": (0.5, "config.toml"),
        "run.max_steps": (12, "pinfold.toml"),
        "run.max_tokens": (700, "PINFOLD_RUN_MAX_TOKENS"),
        "run.max_seconds": (30.0, "flag"),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run", "not valid TOML"),
        ("[rum]\nmax_steps = 1", "unknown section [rum]; did you mean 'run'?"),
        ("[run]\nmax_step = 1", "unknown key 'max_step' in [run]; did you mean 'max_steps'?"),
        ("[run]\nmax_steps = 'many'", "run.max_steps: Expected `int`, got `str`"),
        ("[run]\nmax_steps = 0", "run.max_steps must be more than 0 and finite"),
        ("[run]\nmode = 'yolo'", "run.mode: Invalid enum value 'yolo'"),
        ("run = 3", "run must be a section"),
        ("[sandbox]\ncell_s = nan", "sandbox.cell_s must be more than 0"),
        ("[sandbox]\ncell_s = inf", "sandbox.cell_s must be more than 0 and finite"),
        ("[sessions]\nkeep_days = -1", "sessions.keep_days must be more than 0"),
        ("\xff", "not valid TOML"),
    ],
)
def test_a_broken_file_is_named_with_what_to_fix(user_file: Path, text: str, words: str) -> None:
    user_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        load_config()
    assert words in str(caught.value)
    assert "config.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model]\nname = 'x'", "a project may not set model.name"),
        ("[run]\nmode = 'full'", "a project may not set run.mode"),
        ("[sandbox]\nprovider = 'unsafe-local'", "a project may not set sandbox.provider"),
        ("[run]\nmax_steps = 21", "may only lower run.max_steps; it is 20"),
        ("[sandbox]\ncell_s = 500", "may only lower sandbox.cell_s"),
        ("[sandbox]\nprocesses = 257", "may only lower sandbox.processes; it is 256"),
        ("[sandbox]\nmemory_mb = 1_000_000", "may only lower sandbox.memory_mb"),
        ("[sandbox]\npython = '/usr/bin/python3'", "a project may not set sandbox.python"),
        ("[sandbox]\npackages = ['-r x']", "pinfold.toml: sandbox.packages: '-r x' is not a package name"),
    ],
)
def test_a_projects_file_may_only_lower_limits(workspace: Path, text: str, words: str) -> None:
    project(workspace, text)
    with pytest.raises(ConfigError) as caught:
        load_config(workspace)
    assert words in str(caught.value)


def test_a_projects_packages_come_on_top_of_the_users(user_file: Path, workspace: Path) -> None:
    user_file.write_text("[sandbox]\npackages = ['shapely']\n")
    project(workspace, "[sandbox]\npackages = ['networkx']\nmemory_mb = 128\n")
    sandbox = load_config(workspace).config.sandbox
    assert sandbox.packages == ("shapely", "networkx")
    assert sandbox.limits().memory_bytes == 128 << 20


def test_every_limit_can_be_set_and_defaults_to_the_sandboxes_own() -> None:
    assert load_config().config.sandbox.limits() == Limits(memory_bytes=default_memory() >> 20 << 20)
    flags: dict[str, int] = {
        f"sandbox.{key}": 3 for key in ("cell_s", "shell_s", "interrupt_grace_s", "start_s", "reply_s", "memory_mb")
    } | {f"sandbox.{key}": 3 for key in ("processes", "output_mb", "file_mb")}
    config = load_config(flags={**flags, "limits.disk_mb": 3}).config
    limits = asdict(config.sandbox.limits(config.limits))
    assert {name: value for name, value in limits.items() if value not in (3, 3 << 20)} == {}


def test_the_disk_a_session_may_take_comes_from_anywhere_and_a_project_only_lowers_it(
    user_file: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file.write_text("[limits]\ndisk_mb = 100\n")
    assert load_config().config.limits.disk_mb == 100
    project(workspace, "[limits]\ndisk_mb = 101\n")
    with pytest.raises(ConfigError, match=r"may only lower limits\.disk_mb; it is 100"):
        load_config(workspace)
    project(workspace, "[limits]\ndisk_mb = 99\n")
    assert load_config(workspace).config.limits.disk_mb == 99
    monkeypatch.setenv("PINFOLD_LIMITS_DISK_MB", "50")
    assert load_config(workspace).config.limits.disk_mb == 50


def test_memory_is_at_most_half_of_the_machines_and_4_gib() -> None:
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    assert default_memory() == Limits().memory_bytes == min(half, 4 << 30)


@pytest.mark.parametrize("text", ["shell, now", '["shell", "now"]'])
def test_a_list_in_the_environment_may_have_commas(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PINFOLD_TOOLS_DISABLE", text)
    assert load_config().config.tools.disable == ("shell", "now")


def test_a_wrong_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_RUN_MAX_STEPS", "soon")
    with pytest.raises(ConfigError, match="PINFOLD_RUN_MAX_STEPS='soon'"):
        load_config()


def test_lists_and_tables_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_MODEL_STOP", '["END"]')
    monkeypatch.setenv("PINFOLD_MODEL_EXTRA", '{"effort": "low"}')
    assert load_config().config.model.settings() == {"stop": ("END",), "effort": "low"}


def test_the_published_schema_is_the_one_in_force() -> None:
    published = Path(__file__).parents[2] / "docs" / "reference" / "config.schema.json"
    in_force = json.loads(json.dumps(config_schema()))
    assert json.loads(published.read_text(encoding="utf-8")) == in_force, "run docs/make_reference.py"


DATABASE = "[data.shop]\nurl = 'postgresql://ann:canary-1234@db.example.org/shop'\n"


def test_databases_are_tables_with_a_name(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_file.write_text(DATABASE + "max_rows = 10\n[data.other-one]\nurl = 'sqlite:///data/x.db'\n")
    monkeypatch.setenv("PINFOLD_DATA_SHOP_MAX_ROWS", "20")
    monkeypatch.setenv("PINFOLD_DATA_OTHER_ONE_TIMEOUT_S", "5")
    loaded = load_config()
    assert {name: (one.max_rows, one.max_mb, one.timeout_s) for name, one in loaded.config.data.items()} == {
        "shop": (20, 256, 60.0),
        "other-one": (1_000_000, 256, 5.0),
    }
    rows = {key: (value, Path(origin).name) for key, value, origin in loaded.rows() if key.startswith("data.")}
    assert rows["data.shop.url"] == ("postgresql://ann@db.example.org/shop", "config.toml")
    assert rows["data.shop.max_rows"] == (20, "PINFOLD_DATA_SHOP_MAX_ROWS")
    assert rows["data.shop.max_mb"] == (256, "default")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data]\nurl = 'x'", "[data] needs a name: write [data.NAME]"),
        ("[data.shop]\nur = 'x'", "unknown key 'ur' in [data.shop]; did you mean 'url'?"),
        ("[data.shop]\nmax_rows = 1", "data.shop: Object missing required field `url`"),
        (f"{DATABASE}max_rows = 'many'", "data.shop.max_rows: Expected `int`, got `str`"),
        (f"{DATABASE}max_rows = 0", "data.shop.max_rows must be more than 0"),
        (f"{DATABASE}timeout_s = inf", "data.shop.timeout_s must be more than 0 and finite"),
        (f"{DATABASE}password = 'x${{secret:A}}'", "data.shop.password: write ${secret:NAME} and nothing else"),
        ("[data.shop]\nurl = 'mysql://ann:canary-1234@b/c'", "data.shop.url is not a database address"),
        ("[data.shop]\nurl = 'sqlite:///x'\npassword = 'canary-1234'", "a sqlite file has no password"),
        ("[data.'a b']\nurl = 'sqlite:///x'", "a database's name is letters"),
    ],
)
def test_a_database_that_is_configured_wrongly_is_named_without_its_password(
    user_file: Path, text: str, words: str
) -> None:
    user_file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config()
    assert words in str(caught.value)
    assert "config.toml" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_project_names_no_database(workspace: Path) -> None:
    project(workspace, DATABASE)
    with pytest.raises(ConfigError, match=r"a project may not set data\.shop"):
        load_config(workspace)


@pytest.mark.parametrize(
    "text",
    [
        DATABASE,
        "[data.shop]\nurl = 'postgresql://ann@db/shop?password=canary-1234'\n",
        "[data.shop]\nurl = 'postgresql://ann@db/shop'\npassword = 'canary-1234'\n",
        "[data.shop]\nurl = 'postgresql://ann@db/shop'\npassword = 'canary'\n",
    ],
)
def test_no_password_is_shown_with_the_configuration(user_file: Path, text: str) -> None:
    user_file.write_text(text)
    loaded = load_config()
    told = repr(list(loaded.rows())) + repr(loaded) + repr(loaded.config)
    assert "db" in told
    assert "canary" not in told


def test_the_name_of_a_kept_password_is_shown(user_file: Path) -> None:
    user_file.write_text("[data.shop]\nurl = 'postgresql://ann@db/shop'\npassword = '${secret:SHOP}'\n")
    assert ("data.shop.password", "${secret:SHOP}") in [row[:2] for row in load_config().rows()]
