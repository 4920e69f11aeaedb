"""Signing in, against a real authorisation server on loopback."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from mcp.client.auth import OAuthFlowError
from msgspec import structs
from tests.tools.mcp.doubles import House
from tests.tools.mcp.http_servers import Browser, House401, serving

from pinfold.tools import BadCall, Registry
from pinfold.tools.mcp.oauth import check_page
from pinfold.tools.mcp.ports import Limits
from pinfold.tools.mcp.servers import Servers
from pinfold.tools.mcp.spec import OAuth, ServerSpec

pytestmark = pytest.mark.safety

LIMITS = Limits(start_s=20, first_wait_s=0.01, sign_in_s=20)


@pytest.fixture
async def guarded() -> House401:
    return House401()


@pytest.fixture
async def spec(guarded: House401) -> AsyncGenerator[ServerSpec]:
    async with serving(guarded.app) as base:
        yield ServerSpec(name="web", transport="http", url=f"{base}/mcp", timeout_s=5)


def _servers(house: House, spec: ServerSpec) -> Servers:
    return house.servers(spec, limits=LIMITS)


async def _call(house: House, spec: ServerSpec) -> None:
    async with _servers(house, spec) as servers:
        tools = Registry(await servers.tools("web"))
        assert (await tools.call("web.fine", {})).value == "fine"


async def test_the_user_signs_in_once_and_the_tokens_are_kept(guarded: House401, spec: ServerSpec) -> None:
    browser = Browser()
    house = House(person=browser)
    await _call(house, spec)
    await _call(house, spec)
    assert guarded.grants == ["authorization_code"]
    assert set(guarded.authorised) == {"access-1"}
    [(server, page, why)] = browser.asked
    assert (server, why) == ("web", "web wants you to sign in")
    asked = {key: values[0] for key, values in parse_qs(urlsplit(page).query).items()}
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == spec.url
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    assert "You are signed in" in browser.shown[0]
    kept = json.loads(house.credentials.kept["web"])
    assert kept["url"] == spec.url
    assert kept["tokens"]["access_token"] == "access-1"


async def test_an_old_token_is_refreshed_where_it_came_from_without_the_user(
    guarded: House401, spec: ServerSpec
) -> None:
    browser = Browser()
    house = House(person=browser)
    await _call(house, spec)
    kept = json.loads(house.credentials.kept["web"])
    house.credentials.kept["web"] = json.dumps({**kept, "expires_at": time.time() - 60})
    guarded.good.clear()
    await _call(house, spec)
    assert guarded.grants == ["authorization_code", "refresh_token"]
    assert len(browser.asked) == 1


async def test_a_user_who_declines_is_not_signed_in_and_nothing_is_opened(guarded: House401, spec: ServerSpec) -> None:
    browser = Browser(agrees=False)
    house = House(person=browser)
    async with _servers(house, spec) as servers:
        with pytest.raises(BadCall, match="web did not start: no sign-in: you declined to sign in"):
            await servers.tools("web")
    assert guarded.visits == []
    assert len(browser.asked) == 1
    assert guarded.grants == []


async def test_a_page_that_says_no_is_told(guarded: House401, spec: ServerSpec) -> None:
    guarded.refuses = True
    async with _servers(House(person=Browser()), spec) as servers:
        with pytest.raises(BadCall, match="no sign-in: the sign-in page says 'access_denied'"):
            await servers.tools("web")


class _Loiterer(Browser):
    """Opens the page and never comes back; others knock at the door meanwhile."""

    knocked: int = 0

    async def open_page(self, server: str, url: str, why: str) -> bool:
        self.asked.append((server, url, why))
        asked = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
        back = asked["redirect_uri"]
        async with httpx2.AsyncClient() as client:
            for path in (
                "",
                "?code=stolen",
                "?code=stolen&state=guessed",
                "?error=x",
                "/../other?state=" + asked["state"],
            ):
                answer = await client.get(back + path)
                assert answer.status_code == 404
                self.knocked += 1
            assert (await client.post(f"{back}?code=x&state={asked['state']}")).status_code == 404
        return True


async def test_whoever_comes_back_without_the_state_is_not_believed(guarded: House401, spec: ServerSpec) -> None:
    loiterer = _Loiterer()
    async with House(person=loiterer).servers(spec, limits=replace(LIMITS, sign_in_s=3)) as servers:
        with pytest.raises(BadCall, match="there was no sign-in within 3 s"), anyio.fail_after(60):
            await servers.tools("web")
    assert loiterer.knocked == 5
    assert guarded.grants == []


async def test_tokens_of_another_address_are_not_used(guarded: House401, spec: ServerSpec) -> None:
    house = House(person=Browser(agrees=False))
    kept = {"url": "https://elsewhere.example/mcp", "tokens": {"access_token": "secret", "token_type": "Bearer"}}
    house.credentials.kept["web"] = json.dumps(kept)
    async with _servers(house, spec) as servers:
        with pytest.raises(BadCall, match="declined"):
            await servers.tools("web")
    assert guarded.shown
    assert set(guarded.shown) == {""}
    # The control: under its own address the same token is used.
    guarded.good.add("secret")
    house.credentials.kept["web"] = json.dumps({**kept, "url": spec.url})
    await _call(house, spec)
    assert set(guarded.authorised) == {"secret"}


@pytest.mark.parametrize("issuer", ["http://169.254.169.254", "http://10.0.0.1:8080", "http://login.example.com"])
async def test_a_server_cannot_have_us_call_on_others_in_our_own_house(
    guarded: House401, spec: ServerSpec, issuer: str
) -> None:
    guarded.issuer = issuer
    browser = Browser()
    async with _servers(House(person=browser), spec) as servers:
        with pytest.raises(BadCall, match="which is not allowed"):
            await servers.tools("web")
    assert browser.asked == []


async def test_a_secret_is_shown_for_a_token_to_its_own_issuer_only(guarded: House401, spec: ServerSpec) -> None:
    base = spec.url.removesuffix("/mcp")
    oauth = OAuth(grant="client_credentials", client_id="me", client_secret="s3cret", issuer=base)
    browser = Browser()
    await _call(House(person=browser), replace(spec, oauth=oauth))
    assert guarded.grants == ["client_credentials"]
    assert browser.asked == []
    guarded.good.clear()
    elsewhere = structs.replace(oauth, issuer="https://login.example.com")
    async with _servers(House(person=browser), replace(spec, oauth=elsewhere)) as servers:
        with pytest.raises(BadCall, match="no sign-in"):
            await servers.tools("web")
    assert guarded.grants == ["client_credentials"]


async def test_a_header_of_the_users_own_stands_in_for_signing_in(guarded: House401, spec: ServerSpec) -> None:
    browser = Browser()
    guarded.good.add("mine")
    await _call(House(person=browser), replace(spec, headers={"authorization": "Bearer mine"}))
    async with _servers(House(person=browser), replace(spec, headers={"authorization": "Bearer wrong"})) as servers:
        with pytest.raises(BadCall, match="HTTP 401"):
            await servers.tools("web")
    assert browser.asked == []


PAGES = {
    "a file": "file:///etc/passwd",
    "a program": "javascript:alert(1)//",
    "a page made of itself": "data:text/html,x",
    "another protocol": "ftp://login.example.com/",
    "plain http": "http://login.example.com/",
    "this machine": "http://127.0.0.1:8080/admin",
    "this machine by TLS": "https://127.0.0.1/admin",
    "this machine by another name": "https://admin.localhost/",
    "this machine in IPv6": "https://[::1]:8080/",
    "the network": "https://10.0.0.1/",
    "the cloud's own": "https://169.254.169.254/",
    "another host as user": "https://login.example.com@evil.example/",
    "another client": "https://login.example.com/authorize?client_id=theirs",
    "another way back": "https://login.example.com/authorize?redirect_uri=https://evil.example/",
    "a state they know": "https://login.example.com/authorize?state=known",
    "more than was asked": "https://login.example.com/authorize?scope=everything",
    "a request of theirs": "https://login.example.com/authorize?request_uri=urn:x",
    "an answer by post": "https://login.example.com/authorize?response_mode=form_post",
    "nothing that comes back": "https://login.example.com/authorize#",
}
ASKED = (
    "response_type=code&client_id=ours&redirect_uri=http://127.0.0.1:1/callback&state=secret&code_challenge=x&scope=a"
)


def test_a_server_elsewhere_sends_the_browser_to_no_bad_page() -> None:
    home = "https://mcp.example.com/mcp"
    let_through: list[str] = []
    for what, page in PAGES.items():
        with suppress(OAuthFlowError):
            check_page(f"{page}{'&' if '?' in page else '?'}{ASKED}", home)
            let_through.append(what)
    assert let_through == []
    for page in ("https://login.example.com/authorize?", "https://login.example.com/authorize?tenant=a&"):
        assert check_page(page + ASKED, home) == "secret"
    assert check_page(f"http://127.0.0.1:8080/authorize?{ASKED}", "http://localhost:3000/mcp") == "secret"


LIES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "another issuer": lambda _, evil: {"metadata": {"issuer": evil}},
    "a page that brings a request": lambda ours, _: {
        "metadata": {"authorization_endpoint": f"{ours}/authorize?request_uri=urn:x&a="}
    },
    "a page that brings its own client": lambda ours, _: {
        "metadata": {"authorization_endpoint": f"{ours}/authorize?client_id=theirs"}
    },
    "a page that brings its own state": lambda ours, _: {
        "metadata": {"authorization_endpoint": f"{ours}/authorize?state=known"}
    },
    "tokens at plain http elsewhere": lambda _, __: {"metadata": {"token_endpoint": "http://login.example.com/token"}},
    "tokens in the network": lambda _, __: {"metadata": {"token_endpoint": "https://10.0.0.1/token"}},
    "registration in the network": lambda _, __: {"metadata": {"registration_endpoint": "https://192.168.0.1/r"}},
    "a resource of another": lambda _, evil: {"resource": f"{evil}/mcp"},
    "an answer of another issuer": lambda _, evil: {"brings": {"iss": evil}},
    "an answer without its issuer": lambda _, __: {
        "metadata": {"authorization_response_iss_parameter_supported": True}
    },
    "an answer with another state": lambda _, __: {"brings": {"state": "guessed"}},
    "tokens sent on": lambda _, evil: {"sends_on": f"{evil}/token"},
}


async def test_of_a_dozen_lies_of_a_server_none_gets_a_code_or_a_token_to_another_place(
    guarded: House401, spec: ServerSpec
) -> None:
    ours, evil = spec.url.removesuffix("/mcp"), House401()
    quick = replace(LIMITS, sign_in_s=0.5)
    let_in: list[str] = []
    async with serving(evil.app) as elsewhere:
        for what, lie in LIES.items():
            said = lie(ours, elsewhere)
            for name, value in said.items():
                setattr(guarded, name, value)
            async with House(person=Browser()).servers(spec, limits=quick) as servers:
                with suppress(BadCall):
                    await servers.tools("web")
                    let_in.append(what)
            for name, value in said.items():
                setattr(guarded, name, type(value)())
        assert (let_in, guarded.grants) == ([], [])
        assert evil.heard == []
        # Signed in honestly; then the server names another place to sign in at, and takes the token no more.
        house = House(person=Browser(agrees=False))
        signing = House(person=Browser(), credentials=house.credentials)
        await _call(signing, spec)
        guarded.issuer = elsewhere
        guarded.good.clear()
        async with _servers(house, spec) as servers:
            with pytest.raises(BadCall, match="declined"):
                await servers.tools("web")
        everything = " ".join(evil.heard + evil.shown + evil.visits)
        assert "redirect_uris" in everything  # it did ask there for a place of its own
        assert not any(word in everything for word in ("access-1", "refresh-1", "code_verifier", "client-1"))
