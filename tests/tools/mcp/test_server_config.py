"""`mcpServers` files: what loads, and the one line for what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.tools.mcp.spec import OAuth, ServerSpec, module_name, read_servers

pytestmark = pytest.mark.unit


def _read(servers: Any) -> tuple[tuple[ServerSpec, ...], tuple[str, ...]]:
    return read_servers(json.dumps({"mcpServers": servers}).encode(), "mcp.json")


def test_a_command_and_a_url_are_read_as_other_clients_write_them() -> None:
    specs, faults = _read(
        {
            "brave-search": {
                "command": "npx",
                "args": ["-y", "server-brave"],
                "env": {"KEY": "${BRAVE}", "PORT": 3000},
                "autoApprove": ["x"],
            },
            "git": {"command": "mcp-server-git", "reach": "workspace", "timeout_s": 5},
            "api": {"type": "streamable-http", "url": "https://mcp.example.com/mcp", "headers": {"X-Key": "${K}"}},
            "old": {"type": "sse", "url": "http://127.0.0.1:8000/sse"},
            "off": {"command": "x", "disabled": True},
            "cloud": {
                "url": "https://c.example.com",
                "oauth": {
                    "grant": "client_credentials",
                    "client_id": "me",
                    "client_secret": "s",
                    "issuer": "https://login.example.com",
                },
            },
        }
    )
    assert faults == ()
    assert specs == (
        ServerSpec(
            name="brave_search",
            transport="stdio",
            command="npx",
            args=("-y", "server-brave"),
            env={"KEY": "${BRAVE}", "PORT": "3000"},
            origin="mcp.json",
        ),
        ServerSpec(
            name="git", transport="stdio", command="mcp-server-git", reach="workspace", timeout_s=5.0, origin="mcp.json"
        ),
        ServerSpec(
            name="api",
            transport="http",
            url="https://mcp.example.com/mcp",
            headers={"X-Key": "${K}"},
            origin="mcp.json",
        ),
        ServerSpec(name="old", transport="sse", url="http://127.0.0.1:8000/sse", origin="mcp.json"),
        ServerSpec(
            name="cloud",
            transport="http",
            url="https://c.example.com",
            oauth=OAuth(
                grant="client_credentials", client_id="me", client_secret="s", issuer="https://login.example.com"
            ),
            origin="mcp.json",
        ),
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (7, "should be an object, not a number"),
        ({}, "says neither `command` nor `url`"),
        ({"command": ""}, "has an empty `command`"),
        ({"command": ["npx"]}, "`command` should be a text, not a list"),
        ({"command": "x", "args": "-y"}, "`args` should be a list, not a text"),
        ({"command": "x", "args": [True]}, "`args[0]` should be a number or a text, not true or false"),
        ({"command": "x", "env": {"A=B": "c"}}, "'A=B' cannot be a name there"),
        ({"command": "x", "url": "https://a.example"}, "`url` does not go with a command"),
        ({"command": "x\0y"}, "NUL"),
        ({"type": "websocket", "url": "https://a.example"}, "`type` should be stdio, http or sse, not 'websocket'"),
        ({"type": "stdio", "url": "https://a.example"}, "has no `command`"),
        ({"url": "ftp://a.example"}, "is not http or https"),
        ({"url": "file:///etc/passwd"}, "is not http or https"),
        ({"url": "https://user:pw@a.example"}, "holds user information"),
        ({"url": "http://a.example/mcp"}, "plain http to another machine"),
        ({"url": "http://localhost.evil.example/mcp"}, "plain http to another machine"),
        ({"url": "https://a.example", "headers": {"X": "a\r\nY: b"}}, "a value holds a line break"),
        ({"url": "https://a.example", "headers": {"a b": "c"}}, "'a b' cannot be a name there"),
        ({"url": "https://${HOST}/"}, "`url` takes no variables"),
        ({"url": "https://a.example", "oauth": {"grant": "password"}}, "`oauth.grant` should be one of code"),
        ({"url": "https://a.example", "oauth": {"grant": "client_credentials"}}, "needs `client_id`"),
        (
            {"url": "https://a.example", "oauth": {"secret": "x"}},
            "`oauth` has no key 'secret'; did you mean client_secret?",
        ),
        ({"command": "x", "timeout_s": 0}, "`timeout_s` should be > 0"),
        ({"command": "x", "timeout_s": "5"}, "`timeout_s` should be a number, not a text"),
        ({"command": "x", "reach": "host"}, "`reach` should be one of"),
        ({"command": "x", "reach": "nothing", "hosts": ["a.example"]}, "`hosts` goes with reach `network`"),
        ({"command": "x", "disabled": "yes"}, "`disabled` should be true or false"),
    ],
)
def test_a_bad_entry_gets_one_line_and_the_others_load(entry: Any, said: str) -> None:
    specs, faults = _read({"bad": entry, "good": {"command": "true"}})
    assert [spec.name for spec in specs] == ["good"]
    assert len(faults) == 1
    assert faults[0].startswith("mcp.json: bad: ")
    assert said in faults[0]
    assert "\n" not in faults[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON: Expecting value, line 1 column 1"),
        (b"{,}", "is not JSON"),
        (b"\xff\xfe{", "is not UTF-8"),
        (b"[]", "should be an object, not a list"),
        (b"{}", "has no `mcpServers`"),
        (b'{"servers": {}}', "rename `servers`"),
        (b'{"mcpServers": []}', "`mcpServers` should be an object"),
        (b'{"mcpServers": ' + b"[" * 100_000, "is not JSON that can be read"),
        (b" " * 1_000_001, "is larger than"),
    ],
)
def test_a_bad_file_gets_one_line(data: bytes, said: str) -> None:
    specs, faults = read_servers(data, "mcp.json")
    assert specs == ()
    assert len(faults) == 1
    assert said in faults[0]


def test_a_key_nobody_knows_is_told_and_the_server_still_loads() -> None:
    specs, faults = _read({"a": {"command": "x", "timout_s": 3}})
    assert len(specs) == 1
    assert faults == ("mcp.json: a: `timout_s` is not understood here; did you mean `timeout_s`?",)


def test_two_entries_of_one_name_are_told_and_neither_replaces_the_other() -> None:
    specs, faults = _read({"a-b": {"command": "x"}, "a_b": {"command": "y"}})
    assert [spec.command for spec in specs] == ["x"]
    assert "another server is `servers.a_b`" in faults[0]
    specs, faults = read_servers(b'{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "mcp.json")
    assert specs == ()
    assert "is given twice" in faults[0]


@pytest.mark.parametrize(
    ("entry", "module"),
    [
        ("git", "git"),
        ("brave-search", "brave_search"),
        ("1password", "_1password"),
        ("import", "import_"),
        ("a.b c", "a_b_c"),
        ("", ""),
        ("__init__", ""),
        ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", ""),
        ("../x", ""),
        ("a" * 65, ""),
    ],
)
def test_a_name_becomes_a_module_of_servers(entry: str, module: str) -> None:
    assert module_name(entry) == module


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_keys = st.sampled_from(
    ["command", "args", "env", "url", "headers", "type", "oauth", "reach", "hosts", "timeout_s", "disabled", "cwd"]
)


@given(st.dictionaries(st.text(max_size=6), st.dictionaries(_keys, _json, max_size=5) | _json, max_size=4))
def test_no_file_raises_and_a_good_entry_always_loads(servers: dict[str, Any]) -> None:
    specs, faults = _read({**servers, "good": {"command": "true"}})
    assert any(spec.name == "good" for spec in specs)
    assert all("\n" not in fault for fault in faults)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    read_servers(data, "mcp.json")
