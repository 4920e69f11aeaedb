"""Another model for a session that is live."""

from __future__ import annotations

from pinfold.app.assembling import Assembled
from pinfold.app.models import Asked, Calling, asked_of
from pinfold.engine import Choice


class Switching:
    def __init__(self, asked: Asked, calling: Calling) -> None:
        self.asked = asked
        """The last."""
        self.made: Assembled | None = None
        """Once it is: what must fit the model."""
        self._calling = calling
        self._before: list[Asked] = []

    def choose(self, model: str) -> Choice:
        """Raises ModelError."""
        assert self.made is not None
        asked = asked_of(model, "", (), self._calling.with_stored_keys())
        if asked.profile != self.asked.profile:
            self.made.hands.suit(small=asked.profile == "small")
        self._before.append(self.asked)
        self.asked = asked
        return Choice(model=asked.model, prompt=self.made.prompt(asked.profile))

    async def close(self) -> None:
        for asked in (*self._before, self.asked):
            await asked.close()
