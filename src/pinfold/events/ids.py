"""Typed ids. A prefix says what an id names; the rest is random."""

from __future__ import annotations

import os
from typing import NewType

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
ActionId = NewType("ActionId", str)
BlobId = NewType("BlobId", str)
"""`sha256:` and the hex digest of the content."""


def new_session_id() -> SessionId:
    return SessionId(f"s_{os.urandom(6).hex()}")


def new_turn_id() -> TurnId:
    return TurnId(f"t_{os.urandom(6).hex()}")


def new_action_id() -> ActionId:
    return ActionId(f"a_{os.urandom(6).hex()}")
