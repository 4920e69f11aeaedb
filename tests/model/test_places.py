"""URLs of servers, taken apart, and the proxy that leads there."""

from __future__ import annotations

import os

import pytest
from tests.model.servers import said, serving
from tests.model.talking import reply

from pinfold.model.wire.openai import OpenAIModel
from pinfold.model.wire.places import BadUrl, read_place


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("http://127.0.0.1:8080/v1", "127.0.0.1:8080", "/v1/x"),
        ("HTTPS://Api.Example.com/v1/", "api.example.com", "/v1/x"),
        ("http://[::1]:1/", "[::1]:1", "/x"),
        ("http://my_server", "my_server", "/x"),
        ("https://host/a b/ü?api-version=1&k=a%20b", "host", "/a%20b/%C3%BC/x?api-version=1&k=a%20b"),
        ("http://bücher.example:80", "xn--bcher-kva.example:80", "/x"),
    ],
)
def test_a_url_says_whom_to_ask_for_what(url: str, host: str, target: str) -> None:
    place = read_place(url)
    assert (place.host_header, place.target("x")) == (host, target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:8080",
        "ftp://host",
        "http://",
        "http:///v1",
        "http://a b/",
        "http://[::1",
        "http://key:secret",
    ],
)
def test_what_is_no_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        read_place(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://api.example.com", None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https://api.example.com", b"http://proxy:3128/"),
        ({"https_proxy": "proxy:3128"}, "https://api.example.com", b"http://proxy:3128/"),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://api.example.com", None),
        ({"ALL_PROXY": "http://proxy:3128"}, "http://api.example.com", b"http://proxy:3128/"),
        ({"ALL_PROXY": "http://proxy:3128"}, "http://localhost:8080", None),
        ({"ALL_PROXY": "http://proxy:3128"}, "http://127.0.0.1:8080", None),
        ({"ALL_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, "https://api.example.com", None),
        ({"ALL_PROXY": "http://proxy:3128", "NO_PROXY": "x, example.com"}, "https://api.example.com", None),
        ({"ALL_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8"}, "http://10.1.2.3:8000", None),
        (
            {"ALL_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8,/,x/y"},
            "http://11.1.2.3:8000",
            b"http://proxy:3128/",
        ),
    ],
)
def test_the_environment_names_the_proxy(
    environment: dict[str, str], url: str, proxy: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = read_place(url).proxy()
    assert (found and bytes(found.url)) == proxy


def test_a_proxy_is_told_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:p%40ss@proxy:3128")
    proxy = read_place("https://api.example.com").proxy()
    assert proxy is not None
    assert proxy.auth == (b"me", b"p@ss")


@pytest.mark.parametrize("address", ["gopher://proxy", "http://proxy:x"])
def test_a_proxy_that_cannot_be_used_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(ValueError, match=r"proxy|[Pp]ort"):
        read_place("https://api.example.com").proxy()


@pytest.mark.integration
async def test_user_and_password_of_a_url_are_said_and_nothing_else_instead() -> None:
    with serving(said("fine")) as server:
        url = server.url.replace("://", "://me:p%40ss@") + "/v1"
        model = OpenAIModel(name="m", base_url=url, model="m", key="k-1")
        assert (await reply(model)).text == "fine"
        asked = server.asked[0].headers
        assert asked["host"] == server.url.removeprefix("http://")
    assert asked["authorization"] == "Basic bWU6cEBzcw=="
