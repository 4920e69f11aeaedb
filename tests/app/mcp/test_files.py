"""Where servers are named, what is filled in, and what is kept of them. Starts none."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.app.errors import ConfigError
from pinfold.app.session.mcp.credentials import StoredCredentials
from pinfold.app.session.mcp.files import (
    build_entry,
    load_servers,
    remove_entry,
    spec_of,
    user_file,
    write_entry,
)
from pinfold.app.session.mcp.pins import FilePins
from pinfold.app.session.mcp.placement import describe_place
from pinfold.app.session.mcp.server_requests import InvalidAnswer, fields_of
from pinfold.app.trust.mcp_reach import is_sandboxed
from pinfold.app.trust.secrets import Secrets
from pinfold.text import redact
from pinfold.tools.mcp.spec import ServerSpec

pytestmark = pytest.mark.unit
MANIFEST = {"version": 1, "sha256": "x", "tools": [{"name": "a"}]}


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


def project(**servers: Any) -> bytes:
    return json.dumps({"mcpServers": servers}).encode()


def names(**given: Any) -> list[tuple[str, str]]:
    return [(spec.name, spec.command or spec.url) for spec in load_servers(**given).specs]


def test_the_callers_own_come_before_the_users_and_these_before_a_folders() -> None:
    write_entry("a", {"command": "users"})
    write_entry("b", {"command": "users"})
    folder = project(a={"command": "folders"}, b={"command": "folders"}, c={"command": "folders"})
    assert names(project=folder, more=("mcp", project(a={"command": "callers"}))) == [
        ("a", "callers"),
        ("b", "users"),
        ("c", "folders"),
    ]
    faults = load_servers(folder, "/w/.mcp.json").faults
    assert faults == tuple(
        f"/w/.mcp.json: {name} is not used: {user_file()} has a server of that name too" for name in "ab"
    )


def test_a_users_file_keeps_what_else_is_in_it_and_is_for_the_user_alone() -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text(json.dumps({"note": "mine", "mcpServers": {"a-b": {"command": "x"}}}), "utf-8")
    user_file().chmod(0o600)
    write_entry("c", {"command": "y"})
    write_entry("a_b", {"command": "z"})
    assert json.loads(user_file().read_bytes()) == {
        "note": "mine",
        "mcpServers": {"c": {"command": "y"}, "a_b": {"command": "z"}},
    }
    assert user_file().stat().st_mode & 0o777 == 0o600
    remove_entry("c")
    with pytest.raises(ConfigError, match="names no server 'c'; there are: a_b"):
        remove_entry("c")


def test_only_a_server_of_the_users_own_stands_in_the_place_of_pinfolds_tools() -> None:
    entries = {"web": {"command": "x"}, "web-search": {"command": "x"}}
    folder = json.dumps({"mcpServers": entries}).encode()
    named = load_servers(folder, "/w/.mcp.json")
    assert [spec.name for spec in named.specs] == ["web_search"]
    assert [fault.split(";")[0] for fault in named.faults] == [
        "/w/.mcp.json: web is not used: Pinfold's own tools have that name"
    ]
    write_entry("web", entries["web"])
    assert [spec.name for spec in load_servers().specs] == ["web"]


def test_variables_are_filled_in_from_secrets_then_from_the_environment_then_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOTH", "from the environment")
    monkeypatch.setenv("MINE", "mine")
    Secrets().set("BOTH", "from the secrets", ["a.mcp"])
    Secrets().set("ELSEWHERE", "for another host", ["other.example.org"])
    spec = spec_of("a", {"command": "x", "args": ["${MINE}", "${NONE:-else}"], "env": {"T": "Bearer ${BOTH}"}})
    assert (spec.args, spec.env) == (("mine", "else"), {"T": "Bearer from the secrets"})
    header = {"url": "https://api.example.org/mcp", "headers": {"Authorization": "${BOTH}"}}
    assert spec_of("a", header).headers == {"Authorization": "from the environment"}
    with pytest.raises(ConfigError, match=r"ELSEWHERE is not set; give it: pinfold secret set ELSEWHERE --host a\.mcp"):
        spec_of("a", {"command": "${ELSEWHERE}"})
    assert "from the secrets" not in redact("it is from the secrets")


def test_one_bad_entry_spoils_no_other() -> None:
    write_entry("good", {"command": "x"})
    table = json.loads(user_file().read_bytes())
    table["mcpServers"] |= {"bad": {}, "unset": {"command": "x", "env": {"A": "${NOT_SET_ANYWHERE}"}}}
    user_file().write_text(json.dumps(table), "utf-8")
    found = load_servers()
    assert [spec.name for spec in found.specs] == ["good"]
    assert len(found.faults) == 2


def spec(name: str = "a", origin: str = "", **more: Any) -> ServerSpec:
    given: dict[str, Any] = {"command": "x", **more}
    return ServerSpec(name=name, transport="stdio", origin=origin or str(user_file()), **given)


def test_what_was_agreed_to_is_of_one_program_under_one_name_in_one_file() -> None:
    pins = FilePins([spec()])
    assert (pins.get("a"), pins.is_trusted("a")) == (None, False)
    pins.put("a", MANIFEST)
    pins.trust("a")
    assert (pins.get("a"), pins.is_trusted("a")) == (MANIFEST, True)
    steered = spec(env={"NODE_OPTIONS": "--require=x.js"})
    for other in (spec(command="y"), spec(args=("z",)), spec(origin="/w/.mcp.json"), steered):
        assert (FilePins([other]).get("a"), FilePins([other]).is_trusted("a")) == (None, False)
    assert FilePins([spec(env={"API_TOKEN": "tok-0123456789"})]).is_trusted("a")  # a key may be another
    pins.put("a", MANIFEST)
    assert not pins.is_trusted("a")  # a change that was agreed to is not believed yet
    (file,) = pins.folder.glob("a*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"{")
    with pytest.raises(ConfigError, match="is damaged; remove it"):
        pins.get("a")


def test_tokens_are_kept_as_secrets_are_for_their_host_and_shown_to_nobody() -> None:
    server = ServerSpec(name="a", transport="http", url="https://mcp.example.org/x")
    kept = StoredCredentials([server])
    text = json.dumps({"tokens": {"access_token": "tok-abcdefgh-12345", "scope": "all"}})
    assert kept.get("a") is None
    kept.put("a", text)
    assert kept.get("a") == text
    assert (
        StoredCredentials([ServerSpec(name="a", transport="http", url="https://evil.example.org/x")]).get("a") is None
    )
    assert [one.hosts for one in Secrets().all()] == [("mcp.example.org",)]
    assert "tok-abcdefgh-12345" not in redact("here it is: tok-abcdefgh-12345")
    kept.put("a", None)
    assert (kept.get("a"), Secrets().all()) == (None, ())


@pytest.mark.parametrize(
    ("reach", "boxed"),
    [(None, False), ("outside", False), ("nothing", True), ("files", True), ("workspace", True), ("network", True)],
)
def test_what_declares_how_little_it_needs_runs_in_a_sandbox(reach: Any, boxed: bool) -> None:
    assert is_sandboxed(spec(reach=reach)) == boxed
    assert describe_place(spec(reach=reach)) == (f"a sandbox of its own (reach {reach})" if boxed else "this machine")


def test_what_is_typed_becomes_an_entry() -> None:
    assert build_entry(what=("npx", "-y", "x"), env=("A=b=c",), hosts=("a.org",)) == {
        "command": "npx",
        "args": ["-y", "x"],
        "env": {"A": "b=c"},
        "reach": "network",
        "hosts": ["a.org"],
    }
    headers = ("Authorization: Bearer a=b", "X=y:z")
    assert build_entry(what=("https://a.org/mcp",), headers=headers, transport="sse") == {
        "url": "https://a.org/mcp",
        "type": "sse",
        "headers": {"Authorization": "Bearer a=b", "X": "y:z"},
    }


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"},
        "age": {"type": "integer"},
        "share": {"type": "number"},
        "ok": {"type": "boolean"},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "colour": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}]},
        "days": {"type": "array", "items": {"type": "string", "enum": ["mon", "tue"]}},
    },
    "required": ["name"],
}


def test_a_persons_words_become_what_the_form_wants() -> None:
    fields = {field.name: field for field in fields_of(SCHEMA) or ()}
    said = {
        "name": " Ada ",
        "age": "36",
        "share": "0.5",
        "ok": "no",
        "size": "Small",
        "colour": "Red",
        "days": "mon, tue",
    }
    assert {name: fields[name].value(words) for name, words in said.items()} == {
        "name": "Ada",
        "age": 36,
        "share": 0.5,
        "ok": False,
        "size": "s",
        "colour": "#f00",
        "days": ["mon", "tue"],
    }
    assert fields["name"].is_required
    for name, words in {"age": "3.5", "share": "nan", "ok": "maybe", "size": "L", "days": "mon, sun"}.items():
        with pytest.raises(InvalidAnswer):
            fields[name].value(words)


KEYS = st.sampled_from(
    ["type", "enum", "enumNames", "oneOf", "anyOf", "items", "title", "description", "default", "const", "required"]
)
VALUES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object"]) | st.text() | st.none()
CONTENT = st.recursive(
    VALUES | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, CONTENT, max_size=5), CONTENT, st.text() | st.sampled_from(["1", "yes", "nan", "a,b"]))
@settings(max_examples=200)
def test_no_form_of_a_servers_breaks_us(field: dict[str, Any], required: Any, words: str) -> None:
    found = fields_of({"properties": {"a": field}, "required": required})
    assert found is not None
    (one,) = found
    assert one.question
    with suppress(InvalidAnswer):
        one.value(words)
