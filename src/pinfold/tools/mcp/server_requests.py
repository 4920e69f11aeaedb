"""What a server may ask: a person's answer, a page, a model's text, the folders. A bounded number at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import mcp_types as types
from mcp.client import ClientRequestContext
from pydantic import ValidationError

from pinfold.net import BadDestination, parse_url
from pinfold.text import cap_text, presentable_line
from pinfold.tools.mcp.limits import Limits
from pinfold.tools.mcp.ports import Person, Sampler

log = logging.getLogger(__name__)
MESSAGE = 4_000
"""Characters of a server's question that a person is shown."""
SAMPLED_TOKENS = 8_192
_LOGGED = 1_000
"""Lines of one connection; a debug log is no place for more."""
_LOGGED_LINE = 400


@dataclass(eq=False, kw_only=True)
class Answers:
    server: str
    person: Person
    sampler: Sampler
    roots: Callable[[], Sequence[Path]]
    asking: Callable[[], AbstractContextManager[None]]
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
            filled = await self.person.elicit(self.server, message, dict(params.requested_schema))
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
        with self.asking():
            return await self.person.open_page(self.server, url, cap_text(why, MESSAGE))

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        del context
        if self._open >= self.limits.questions:
            return self._too_many()
        with self._question():
            said = await self.sampler.sample(
                self.server,
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
        return types.ListRootsResult(
            roots=[types.Root.model_validate({"uri": folder.as_uri(), "name": folder.name}) for folder in self.roots()]
        )

    async def on_log_message(self, params: types.LoggingMessageNotificationParams) -> None:
        self._logged += 1
        if self._logged <= _LOGGED:
            said = presentable_line(str(params.data)[:_LOGGED_LINE])
            log.debug("%s says (%s): %s", self.server, params.level, said)

    @contextmanager
    def _question(self) -> Generator[None]:
        self._open += 1
        try:
            with self.asking():
                yield
        finally:
            self._open -= 1

    def _too_many(self) -> types.ErrorData:
        return types.ErrorData(
            code=types.INVALID_REQUEST, message=f"more than {self.limits.questions} questions at once"
        )
