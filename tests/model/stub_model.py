"""A model that says what it is told to and remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pinfold.events import Reply, Request, Thought


class Speaking:
    """Gives the replies in order, each after its text in pieces."""

    name = "speaking"

    def __init__(self, *replies: Reply | str, piece: int = 7) -> None:
        self.replies = [reply if isinstance(reply, Reply) else Reply(text=reply) for reply in replies]
        self.piece = piece
        self.asked: list[Request] = []
        self.left: list[Request] = []
        """Requests whose stream was closed, at its end or before."""
        self.closed = False

    async def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        self.asked.append(request)
        reply = self.replies.pop(0)
        try:
            if reply.reasoning:
                yield Thought(reply.reasoning)
            for start in range(0, len(reply.text), self.piece):
                yield reply.text[start : start + self.piece]
            yield reply
        finally:
            self.left.append(request)

    async def aclose(self) -> None:
        self.closed = True
