"""Builds that are weakened on purpose: with them canaries leave, or the scenarios show nothing."""

from __future__ import annotations

from msgspec.structs import replace

from pinfold.app.session.action_policy import ActionPolicy
from pinfold.app.session.egress import SessionEgress
from pinfold.engine import PolicyContext
from pinfold.events import Action, Verdict


class Blind(ActionPolicy):
    """Does not know that anything of others was read."""

    def judge(self, action: Action, given: PolicyContext) -> Verdict:
        return super().judge(action, replace(given, untrusted=False))


class Loose(SessionEgress):
    """Leaves connections open."""

    async def disconnect_all(self) -> None:
        return
