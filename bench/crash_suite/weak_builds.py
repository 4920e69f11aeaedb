"""Deliberately broken builds. An oracle that calls one of these sound is itself broken."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from pinfold.app.clients import TaskQueue
from pinfold.engine import Engine
from pinfold.events import new_turn_id
from pinfold.log import Damage, Log, rows, store
from pinfold.log.rows import Row


async def _leave_open(self: Engine) -> None:
    """As `recover`, but what was running when the process died is taken up again."""


def _runs_again() -> None:
    Engine.recover = _leave_open


def _acknowledges_early() -> None:
    """Every commit is one batch late."""
    held: list[Row] = []

    def insert_late(connection: sqlite3.Connection, batch: list[Row]) -> None:
        ready, held[:] = list(held), batch
        rows.insert(connection, ready)

    store.insert = insert_late


def _miscounts() -> None:
    """The checksum of a changed row is made of the wrong things."""
    true_sum = store.chain_checksum

    def chained(previous: bytes, seq: int, at: bytes, kind: bytes, body: bytes) -> bytes:
        return true_sum(previous, seq, at, kind, body + b" " if kind == b"ModelReplied" else body)

    store.chain_checksum = chained


WEAKENED: dict[str, Callable[[], None]] = {
    "runs again": _runs_again,
    "acknowledges early": _acknowledges_early,
    "miscounts": _miscounts,
}


def _forgets_the_turn() -> None:
    """A task that was running when the process died begins again in a turn of its own."""
    true_release = TaskQueue.release

    def release(self: TaskQueue) -> None:
        for task in self.tasks():
            if task.state == "running":
                self._update(task.number, turn=new_turn_id())  # pyright: ignore[reportPrivateUsage]
        true_release(self)

    TaskQueue.release = release


WEAK_QUEUES: dict[str, Callable[[], None]] = {"forgets the turn": _forgets_the_turn}


class Credulous(Log):
    """Reads whatever rows there are and believes them."""

    def _pages(self, after: int, damage: Damage) -> Iterator[list[Row]]:  # noqa: ARG002
        query = "SELECT * FROM events WHERE seq > ? ORDER BY seq"
        yield self._connection.execute(query, (after,)).fetchall()
