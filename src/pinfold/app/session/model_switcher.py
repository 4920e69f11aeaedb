"""Another model for a session that is live."""

from __future__ import annotations

from pinfold.app.models.session_models import CallOptions, SessionModels, select_models
from pinfold.app.session.build_session import SessionParts
from pinfold.engine import Choice


class ModelSwitcher:
    def __init__(self, asked: SessionModels, calling: CallOptions) -> None:
        self.asked = asked
        """The last."""
        self.made: SessionParts | None = None
        """Once it is: what must fit the model."""
        self._calling = calling
        self._before: list[SessionModels] = []

    def choose(self, model: str) -> Choice:
        """Raises ModelError."""
        assert self.made is not None
        asked = select_models(model, "", (), self._calling.with_stored_keys())
        if asked.profile != self.asked.profile:
            self.made.hands.adapt_to_model(small=asked.profile == "small")
        self._before.append(self.asked)
        self.asked = asked
        return Choice(model=asked.model, prompt=self.made.prompt(asked.profile))

    async def close(self) -> None:
        for asked in (*self._before, self.asked):
            await asked.close()
