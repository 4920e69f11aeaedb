"""One live connection to a server: its listing, and calls to it. Does not reconnect."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import anyio
import mcp_types as types
from mcp.client import Client, ClientRequestContext, IncomingMessage, InputRequiredRoundsExceededError
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from pinfold._version import __version__
from pinfold.events import Json
from pinfold.net import BadDestination, parse_url
from pinfold.text import cap_text, presentable_line
from pinfold.tools.mcp.manifest import Manifest, read_tools
from pinfold.tools.mcp.oauth import make_sign_in
from pinfold.tools.mcp.ports import Limits, McpPorts, Patience
from pinfold.tools.mcp.spec import ServerSpec
from pinfold.tools.mcp.transports import UNKNOWN, UNSENT, ConnectionEnd, Streams, Watch, over_http, over_stdio
from pinfold.tools.results import BadCall
from pinfold.tools.stubs.schema_types import as_list, as_object

logger = logging.getLogger(__name__)
MESSAGE = 4_000
"""Maximum characters of a server's question shown to the user."""
SAMPLED_TOKENS = 8_192
_LOGGED = 1_000
"""Maximum lines logged for one connection."""
_LOGGED_LINE = 400


@dataclass(eq=False)
class Answers:
    """Answers to what a server asks of the user or of a model."""

    spec: ServerSpec
    world: McpPorts
    patience: Patience
    limits: Limits
    _open: int = 0
    _logged: int = 0

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        del context
        if self._open >= self.limits.questions:
            return self._too_many()
        with self._question():
            if isinstance(params, types.ElicitRequestURLParams):
                agreed = await self.open_page(params.url, params.message)
                return types.ElicitResult(action="accept" if agreed else "decline")
            message = cap_text(params.message, MESSAGE)
            filled = await self.world.person.elicit(self.spec.name, message, dict(params.requested_schema))
        if filled is None:
            return types.ElicitResult(action="decline")
        try:
            return types.ElicitResult(action="accept", content=dict(filled))
        except ValidationError:
            return types.ElicitResult(action="cancel")

    async def open_page(self, url: str, why: str) -> bool:
        try:
            parse_url(url)
        except BadDestination:
            return False
        with self.patience.asking():
            return await self.world.person.open_page(self.spec.name, url, cap_text(why, MESSAGE))

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        del context
        if self._open >= self.limits.questions:
            return self._too_many()
        with self._question():
            said = await self.world.sampler.sample(
                self.spec.name,
                [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in params.messages],
                system=params.system_prompt or "",
                max_tokens=max(1, min(params.max_tokens, SAMPLED_TOKENS)),
            )
        if said is None:
            return types.ErrorData(code=-1, message="the user's settings do not let this server ask a model")
        text, model = said
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(text=text), model=model, stop_reason="endTurn"
        )

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        del context
        folders = self.spec.folders() or self.world.roots
        roots = [types.Root.model_validate({"uri": folder.as_uri(), "name": folder.name}) for folder in folders]
        return types.ListRootsResult(roots=roots)

    async def on_log_message(self, params: types.LoggingMessageNotificationParams) -> None:
        self._logged += 1
        if self._logged <= _LOGGED:
            said = presentable_line(str(params.data)[:_LOGGED_LINE])
            logger.debug("%s says (%s): %s", self.spec.name, params.level, said)

    @contextmanager
    def _question(self) -> Generator[None]:
        self._open += 1
        try:
            with self.patience.asking():
                yield
        finally:
            self._open -= 1

    def _too_many(self) -> types.ErrorData:
        message = f"more than {self.limits.questions} questions at once"
        return types.ErrorData(code=types.INVALID_REQUEST, message=message)


T = TypeVar("T")
_MESSAGE = 2_000
_SETTLE_S = 2.0
"""Wait for the reason why a connection ended, after a call has noticed the end."""
_PAGES = 4
"""Maximum number of pages that one refused call may open."""
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "resources": ("list_resources", "list_resource_templates", "read_resource"),
    "prompts": ("list_prompts", "get_prompt"),
}
_SDK_GAVE_UP = ("SSE stream", "Failed to parse", "Unexpected content", "server answered a request")
"""Prefixes of the SDK's own errors for a request that was not answered properly."""
_LIST_CHANGED = (
    types.ToolListChangedNotification,
    types.ResourceListChangedNotification,
    types.PromptListChangedNotification,
)
_BAD_STATUS = "Server returned an error response"

# The SDK logs problems with servers; without a handler, Python would print them on the user's terminal.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class SessionLost(Exception):
    """The server dropped the session without acting: the call may be repeated over a new connection."""


@dataclass(eq=False, kw_only=True)
class Connection:
    spec: ServerSpec
    client: Client
    over: ConnectionEnd
    patience: Patience
    answers: Answers
    limits: Limits
    worked: bool = False
    """True once a call has succeeded."""

    async def manifest(self) -> Manifest:
        """Read the server's current listing. Raises BadCall if it is too long."""
        can = self.client.server_capabilities
        tools = await self._all("list_tools") if can.tools is not None else ()
        has = {"resources": can.resources is not None, "prompts": can.prompts is not None}
        extras = [(name, kind) for kind, names in EXTRAS.items() if has[kind] for name in names]
        dumped = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
        return read_tools(dumped, extras)

    async def call(self, tool: str, arguments: Mapping[str, Json]) -> types.CallToolResult:
        return await self._request(lambda heard: self.client.call_tool(tool, dict(arguments), progress_callback=heard))

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        return await self._request(lambda _: self.client.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        return await self._request(lambda _: self.client.get_prompt(name, dict(arguments)))

    async def list_all(self, what: str) -> Sequence[Any]:
        """Return all resources, templates or prompts."""
        return await self._request(lambda _: self._all(what))

    async def listen(self, changed: Callable[[], None]) -> None:
        """Subscribe to changes for as long as the connection lasts. Servers of the older protocol send them unasked."""
        can = self.client.server_capabilities
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (can.tools and can.tools.list_changed):
            return
        while not self.over.event.is_set():
            try:
                async with self.client.listen(tools_list_changed=True) as events:
                    changed()  # tools may have changed before the subscription
                    async for _ in events:
                        changed()
            except (MCPError, RuntimeError, TimeoutError) as error:
                logger.debug("%s tells no changes: %s", self.spec.name, error)
                return
            await anyio.sleep(self.limits.reread_s)

    async def _request(self, ask: Callable[[ProgressFnT], Awaitable[T]]) -> T:
        """Return the answer. Raises BadCall, which says whether the request may have been carried out."""
        with self.patience.waiting(self.spec.timeout_s) as scope:

            async def on_progress(*_: object, **__: object) -> None:
                self.patience.renew(scope)

            try:
                answer = await ask(on_progress)
            except MCPError as error:
                raise await self._explain_error(error) from error
            except (ValidationError, InputRequiredRoundsExceededError) as error:
                words = "the server never stopped asking for more"
                if isinstance(error, ValidationError):
                    words = f"the server's answer is not what the protocol says: {_first(error)}"
                raise BadCall(words, at_fault=True, may_have_happened=True) from error
            self.worked = True
            return answer
        words = f"it was silent for {self.spec.timeout_s:g} s and was given up; whether it was done is not known"
        raise BadCall(words, at_fault=True, may_have_happened=True)

    async def _explain_error(self, error: MCPError) -> Exception:
        said = presentable_line(cap_text(error.error.message, _MESSAGE))
        if error.error.data == UNSENT:
            return BadCall(f"{said}; it was not done", at_fault=True)
        if error.error.message == "Session terminated":
            return SessionLost(said)
        if error.code == types.URL_ELICITATION_REQUIRED:
            return await self._pages_first(error)
        if error.error.message == _BAD_STATUS:
            said = f"the server answered HTTP {self.over.status}"
            if 400 <= self.over.status < 500:
                return BadCall(f"{said}; it was not done", at_fault=True)
        elif error.error.message == "Connection closed":
            with anyio.move_on_after(_SETTLE_S):
                await self.over.event.wait()
            said = self.over.why or "the connection ended"
        elif error.error.data != UNKNOWN and not error.error.message.startswith(_SDK_GAVE_UP):
            return BadCall(said)
        words = f"{said}; whether it was done is not known"
        return BadCall(words, at_fault=True, may_have_happened=True)

    async def _pages_first(self, error: MCPError) -> BadCall:
        wanted = as_list(as_object(error.error.data).get("elicitations"))[:_PAGES]
        pages = [as_object(one) for one in wanted if isinstance(one, Mapping)]
        agreed = [await self.answers.open_page(str(one.get("url", "")), str(one.get("message", ""))) for one in pages]
        if agreed and all(agreed):
            return BadCall("a page was opened that the user must complete first; then call it again")
        return BadCall("the user must visit a page first, and did not")

    async def _all(self, method: str) -> list[Any]:
        async def page(cursor: str | None) -> tuple[Sequence[Any], str | None]:
            found: Any = await getattr(self.client, method)(cursor=cursor)
            return getattr(found, method.removeprefix("list_")), found.next_cursor

        return await all_pages(page, self.limits)


async def all_pages(page: Callable[[str | None], Awaitable[tuple[Sequence[T], str | None]]], limits: Limits) -> list[T]:
    """Return the items of all pages of a list. Raises BadCall if there are too many."""
    found: list[T] = []
    cursor: str | None = None
    for _ in range(limits.pages):
        more, cursor = await page(cursor)
        found += more
        if len(found) > limits.tools:
            raise BadCall(f"it lists more than {limits.tools:,}; that is too many")
        if not cursor:
            return found
    raise BadCall(f"its list has more than {limits.pages} pages")


async def open_streams(
    stack: AsyncExitStack, spec: ServerSpec, world: McpPorts, watch: Watch, patience: Patience
) -> AbstractAsyncContextManager[Streams]:
    """Open the transport to a server. Closing the stack ends its program."""
    if spec.transport == "stdio":
        process = await stack.enter_async_context(world.start_program(spec))
        return over_stdio(process, watch, lambda words: world.notice(f"{spec.name}: {words}"))
    auth = make_sign_in(spec, world, patience, watch.limits.sign_in_s)
    return over_http(spec, watch, auth)


@asynccontextmanager
async def connect(
    spec: ServerSpec,
    world: McpPorts,
    *,
    limits: Limits,
    patience: Patience,
    over: ConnectionEnd,
    changed: Callable[[], None],
) -> AsyncGenerator[Connection]:
    """Connect and negotiate the protocol version. Lets all errors through; `explain` describes them."""
    answers = Answers(spec, world, patience, limits)

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, _LIST_CHANGED):
            changed()

    async with AsyncExitStack() as stack:
        streams = await open_streams(stack, spec, world, Watch(over, limits), patience)
        client = Client(
            streams,
            elicitation_callback=answers.elicit,
            sampling_callback=answers.sample,
            list_roots_callback=answers.list_roots,
            logging_callback=answers.on_log_message,
            message_handler=on_message,
            client_info=types.Implementation(name="pinfold", version=__version__),
            cache=None,
        )
        await stack.enter_async_context(client)
        # We check results against the schema ourselves, in bounded time; the SDK would run any regular expression.
        client.session.validate_tool_result = _skip_check
        yield Connection(spec=spec, client=client, over=over, patience=patience, answers=answers, limits=limits)


async def _skip_check(name: str, result: types.CallToolResult) -> None:
    del name, result


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"[:300]


def unwrap(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def explain(error: BaseException, over: ConnectionEnd) -> str:
    """Describe in one line why a connection failed."""
    if over.why:
        return over.why
    match error := unwrap(error):
        case MCPError() if error.error.message == _BAD_STATUS:
            words = f"the server answered HTTP {over.status}"
        case MCPError():
            words = error.error.message
        case ValidationError():
            words = f"it does not speak the protocol: {_first(error)}"
        case BadCall() | RuntimeError() if str(error):
            words = str(error)
        case _:
            words = f"{type(error).__name__}: {error}"
    return presentable_line(words)[:_MESSAGE]
