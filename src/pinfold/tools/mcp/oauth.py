"""OAuth: the user signs in with a browser, which returns to a local port, or a secret is exchanged for a token."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from pinfold.events import Json
from pinfold.net import BadDestination, parse_url
from pinfold.tools.mcp.ports import Credentials, McpPorts, Patience, Person
from pinfold.tools.mcp.spec import OAuth, ServerSpec, why_redirect_refused

_PATH = "/callback"
_BASIC: Literal["client_secret_basic"] = "client_secret_basic"
"""The method that every authorisation server must support."""
_OURS = (
    *("response_type", "client_id", "redirect_uri", "state"),
    *("code_challenge", "code_challenge_method", "resource", "scope"),
)
_FORBIDDEN = ("request", "request_uri", "response_mode")
"""Parameters that would override ours."""
_HEAD_BYTES = 16_384
_BROKEN = (anyio.DelimiterNotFound, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)
_VISIT_S = 10.0
_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
    "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n<!doctype html><title>Pinfold</title><p>{words}</p>"
)


def make_sign_in(spec: ServerSpec, world: McpPorts, patience: Patience, within_s: float) -> httpx2.Auth | None:
    """Return the sign-in for a server; None if the user configured an authorization header."""
    if any(name.lower() == "authorization" for name in spec.headers):
        return None
    said = spec.oauth or OAuth()
    kept = _Stored(spec, world.credentials)
    if said.grant == "client_credentials":
        provider: OAuthClientProvider = ClientCredentialsOAuthProvider(
            server_url=spec.url,
            storage=kept,
            client_id=said.client_id,
            client_secret=said.client_secret,
            token_endpoint_auth_method=_BASIC,
            scope=said.scope or None,
            issuer=said.issuer,
        )
    else:
        port = kept.port or said.callback_port or _free_port()
        visit = _BrowserVisit(spec, port, world.person, patience, within_s)
        provider = OAuthClientProvider(
            server_url=spec.url,
            client_metadata=OAuthClientMetadata(
                client_name="Pinfold",
                redirect_uris=[AnyUrl(visit.address)],
                scope=said.scope or None,
                token_endpoint_auth_method=_BASIC if said.client_secret else "none",
            ),
            storage=kept,
            redirect_handler=visit.go,
            callback_handler=visit.result,
        )
        kept.redirect = visit.address
    kept.provider = provider
    return _SignInOnDemand(provider, kept)


class _SignInOnDemand(httpx2.Auth):
    """Signs in only when the server demands it. The SDK's own class would send requests one at a time."""

    def __init__(self, provider: OAuthClientProvider, kept: _Stored) -> None:
        self._provider = provider
        self._kept = kept
        self._is_loaded = False

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        context = self._provider.context
        if not self._is_loaded:
            self._is_loaded = True
            context.current_tokens = await self._kept.get_tokens()
        if context.current_tokens is None or context.is_token_valid():
            if context.current_tokens:
                request.headers["authorization"] = f"Bearer {context.current_tokens.access_token}"
            response = yield request
            wants = response.headers.get("www-authenticate", "")
            if response.status_code != 401 and (response.status_code != 403 or "insufficient_scope" not in wants):
                return
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()


@dataclass(eq=False)
class _Stored:
    """Stored tokens and registration of one server. They are ignored if the server's URL has changed."""

    spec: ServerSpec
    credentials: Credentials
    provider: OAuthClientProvider | None = None
    redirect: str = ""

    @property
    def port(self) -> int:
        """The port in the registered redirect address; 0 if there is none."""
        port = self._read().get("port", 0)
        return port if isinstance(port, int) else 0

    async def get_tokens(self) -> OAuthToken | None:
        kept = self._read()
        try:
            tokens = OAuthToken.model_validate(kept["tokens"])
            metadata = OAuthMetadata.model_validate(kept["server"]) if kept.get("server") else None
        except (KeyError, ValidationError):
            return None
        if self.provider is not None:
            # The SDK loads only the token: it would not know that it has expired, nor where to refresh it.
            self.provider.context.oauth_metadata = metadata
            expires = kept.get("expires_at")
            self.provider.context.token_expiry_time = float(expires) if expires else None
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.provider.context if self.provider else None
        server = context.oauth_metadata if context else None
        self._write(
            tokens=tokens.model_dump(mode="json", exclude_none=True),
            expires_at=context.token_expiry_time if context else None,
            server=server.model_dump(mode="json", exclude_none=True) if server else None,
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        said = self.spec.oauth
        if said and said.client_id:
            return OAuthClientInformationFull(
                client_id=said.client_id,
                client_secret=said.client_secret or None,
                redirect_uris=[AnyUrl(self.redirect)] if self.redirect else None,
                token_endpoint_auth_method=_BASIC if said.client_secret else "none",
                issuer=said.issuer or None,
            )
        try:
            return OAuthClientInformationFull.model_validate(self._read()["client"])
        except (KeyError, ValidationError):
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True), port=urlsplit(self.redirect).port)

    def _read(self) -> dict[str, Json]:
        text = self.credentials.get(self.spec.name)
        try:
            kept: Json = json.loads(text) if text else {}
        except ValueError:
            return {}
        match kept:
            case {"url": self.spec.url}:
                return cast("dict[str, Json]", kept)
            case _:
                return {}

    def _write(self, **more: Json) -> None:
        kept = {**self._read(), "url": self.spec.url, **more}
        self.credentials.put(self.spec.name, json.dumps(kept))


@dataclass(eq=False)
class _BrowserVisit:
    """Sends the browser to the sign-in page and waits for it to return."""

    spec: ServerSpec
    port: int
    person: Person
    patience: Patience
    within_s: float
    _came: Mapping[str, str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{_PATH}"

    async def go(self, url: str) -> None:
        state = check_page(url, self.spec.url)
        came = anyio.Event()
        try:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.port)
        except OSError as error:
            raise OAuthFlowError(f"port {self.port}, to which the browser returns, is taken ({error})") from None

        async def serve(stream: SocketStream) -> None:
            async with stream:
                if found := await _read_callback(stream, state):
                    self._came = found
                    came.set()

        self._came, agreed = None, False
        with self.patience.asking():
            async with listener, anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, serve)
                with anyio.move_on_after(self.within_s):
                    why = f"{self.spec.name} wants you to sign in"
                    agreed = await self.person.open_page(self.spec.name, url, why)
                    if agreed:
                        await came.wait()
                tasks.cancel_scope.cancel()
        if not agreed:
            raise OAuthFlowError("you declined to sign in")

    async def result(self) -> AuthorizationCodeResult:
        came = self._came
        if came is None:
            raise OAuthFlowError(f"there was no sign-in within {self.within_s:g} s")
        if "error" in came:
            raise OAuthFlowError(f"the sign-in page says {came['error'][:80]!r}")
        return AuthorizationCodeResult(code=came.get("code", ""), state=came.get("state"), iss=came.get("iss"))


def check_page(url: str, home: str) -> str:
    """Return the `state` that the browser must bring back. Raises OAuthFlowError if the page is not safe to open."""
    try:
        page, server = parse_url(url), parse_url(home)
    except BadDestination as error:
        raise OAuthFlowError(f"the sign-in page has no valid address: {error}") from None
    if why := why_redirect_refused(page, server):
        raise OAuthFlowError(f"the sign-in page is at {page.scheme}://{page.destination}, {why}")
    said = parse_qs(urlsplit(url).query, keep_blank_values=True)
    # An address with its own values for these parameters could make the user agree to something else.
    is_changed = any(len(said.get(name, [])) > 1 for name in _OURS) or any(name in said for name in _FORBIDDEN)
    if is_changed or "state" not in said:
        raise OAuthFlowError("the sign-in page's address sets parameters that only Pinfold may set")
    return said["state"][0]


async def _read_callback(stream: SocketStream, state: str) -> Mapping[str, str] | None:
    """Answer one HTTP request; return the parameters of the sign-in's callback, or None for any other request."""
    with anyio.move_on_after(_VISIT_S):
        try:
            head = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", _HEAD_BYTES)
            found = _parse_callback(head, state)
            if found is None:
                page = _PAGE.format(status="404 Not Found", words="Nothing is here.")
            else:
                outcome = "Not signed in" if "error" in found else "You are signed in"
                page = _PAGE.format(status="200 OK", words=f"{outcome}. You can close this page.")
            await stream.send(page.encode())
        except _BROKEN:
            return None
        return found
    return None


def _parse_callback(head: bytes, state: str) -> Mapping[str, str] | None:
    line = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split(" ")
    if len(line) != 3 or line[0] != "GET":
        return None
    path, _, query = line[1].partition("?")
    found = {key: values[0] for key, values in parse_qs(query).items()}
    return found if path == _PATH and state and found.get("state") == state else None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
