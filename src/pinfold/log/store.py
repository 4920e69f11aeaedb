"""The session's log: append, read, subscribe. One process writes it; any process may read the file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from time import monotonic
from typing import Self, cast

import anyio
import anyio.to_thread

from pinfold.events import BadEvent, Delta, Entry, Event, SessionId, Unknown, decode, encode, line_of, parse_json
from pinfold.log.blobs import Blobs
from pinfold.log.rows import (
    GENESIS,
    Damage,
    Head,
    LogError,
    LogTooNew,
    LogUnreadable,
    LogUnwritable,
    Row,
    chain_checksum,
    connect,
    insert,
    is_sound,
    kind_column,
    last_row,
    repair_header,
    verify_rows,
)

STORE = "log.sqlite"
HEAD = "head"
_now = partial(datetime.now, UTC)
_REBUILT = "log.rebuilt.sqlite"
_TOGETHER = 256
"""How many batches `append_soon` may queue before it waits for the disk."""
_SOON_S = 0.1
_QUEUE = 10_000
"""Items a subscriber may lag behind before it is served from disk again."""


class Batch:
    """The events of one `append`, and its result: entries or an error."""

    def __init__(self, events: tuple[Event, ...], bodies: list[bytes]) -> None:
        self.events, self.bodies = events, bodies
        self.entries: tuple[Entry, ...] | None = None
        self.error: LogUnwritable | None = None


class Log:
    """One session's events, in `folder`, or in memory if it is None.

    `append` returns when the events are on disk; appends that wait at the same time share one
    commit. Subscribers see an event only after that.
    """

    def __init__(self, folder: Path | None, session: SessionId, *, clock: Callable[[], datetime] = _now) -> None:
        self.session = session
        self.folder = folder
        self.blobs = Blobs(folder / "blobs" if folder else None)
        self._clock = clock
        if folder:
            _finish_rebuild(folder)
        self._is_mended = False
        try:
            self._connection = connect(folder / STORE if folder else ":memory:")
        except LogUnreadable as error:
            connection = repair_header(folder / STORE) if folder and not isinstance(error, LogTooNew) else None
            if connection is None:
                raise
            self._connection, self._is_mended = connection, True
        try:
            self._head = Head(folder / HEAD) if folder else None
        except LogError:
            self._connection.close()
            raise
        self._pending: list[Batch] = []
        self._committed_at = 0.0
        self._lock = anyio.Lock()
        # A limiter of its own, because tools that hang in the common thread pool must not stop the log.
        self._thread = anyio.CapacityLimiter(1)
        self._subscriptions: set[Subscription] = set()
        self._followers: list[Callable[[Entry], None]] = []
        last, self._sum = last_row(self._connection)
        self.seq = max(last, self._head.read() if self._head else 0)
        """The last number assigned. It is never assigned again, even if its event was lost."""

    def read(self, after: int = 0, damage: Damage | None = None) -> Iterator[Entry]:
        """Yield the events after `after` whose checksum holds; note the others in `damage`."""
        for page in self._pages(after, damage if damage is not None else Damage()):
            for seq, at, kind, body, _ in page:
                yield Entry(seq=seq, session=self.session, at=at.decode(), event=_event(kind, body))

    def lines(self, damage: Damage) -> Iterator[str]:
        """Yield every readable event as a JSON line, including fields that this version does not know."""
        for seq, at, _, body, _ in chain.from_iterable(self._pages(0, damage)):
            yield line_of(seq, self.session, at.decode(), body.decode("ascii"))

    def repair(self, damage: Damage) -> None:
        """If the store is damaged, copy what is readable into a new one. Call this before the first write."""
        if self.folder is None or (not damage.unreadable and is_sound(self._connection)):
            return
        damage.tree = damage.tree or not damage
        try:
            self._rebuild(self.folder)
        except (sqlite3.Error, OSError) as error:
            raise LogUnwritable(f"cannot repair {self.folder}: {error}; free some space") from error

    def _rebuild(self, folder: Path) -> None:
        rebuilt = folder / _REBUILT
        partial = rebuilt.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with contextlib.closing(connect(partial)) as connection:
            insert(connection, list(_chain_again(chain.from_iterable(self._pages(0, Damage())))))
            connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        partial.replace(rebuilt)
        _finish_rebuild(folder)
        self._connection, self._is_mended = connect(folder / STORE), False
        _, self._sum = last_row(self._connection)

    def fill(self, rows: list[Row]) -> None:
        """Put imported rows into an empty log, with a new checksum chain."""
        try:
            self._write(list(_chain_again(iter(rows))))
        except (sqlite3.Error, OSError) as error:
            raise LogUnwritable(f"cannot write {self.folder}: {error}") from error
        self.seq, self._sum = last_row(self._connection)

    async def append(self, *events: Event) -> tuple[Entry, ...]:
        """Write events in order, in one transaction. Raises NotPlain or LogUnwritable; then none is written."""
        if not events:
            return ()
        batch = self.queue_events(events)
        # Once queued, the batch may be committed with others at any moment, so wait for the result.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if batch.entries is None and batch.error is None:
                    await self._commit_pending()
        if batch.error:
            raise batch.error
        return batch.entries or ()

    async def append_soon(self, *events: Event) -> None:
        """Write with the next `append`, or at once if the last commit is a while ago or many are queued."""
        if len(self._pending) >= _TOGETHER or monotonic() - self._committed_at > _SOON_S:
            await self.append(*events)
        else:
            self.queue_events(events)

    def queue_events(self, events: tuple[Event, ...]) -> Batch:
        batch = Batch(events, [encode(event).encode("ascii") for event in events])
        self._pending.append(batch)
        return batch

    async def _commit_pending(self) -> None:
        batches, self._pending = self._pending, []
        now = self._clock()
        at = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z"
        rows: list[Row] = []
        seq, previous = self.seq, self._sum
        for batch in batches:
            entries: list[Entry] = []
            for event, body in zip(batch.events, batch.bodies, strict=True):
                seq += 1
                kind = kind_column(event.kind if isinstance(event, Unknown) else type(event).__name__)
                previous = chain_checksum(previous, seq, at.encode(), kind, body)
                rows.append((seq, at.encode(), kind, body, previous))
                entries.append(Entry(seq=seq, session=self.session, at=at, event=event))
            batch.entries = tuple(entries)
        try:
            if self.folder is None:
                insert(self._connection, rows)
            else:
                await anyio.to_thread.run_sync(self._write, rows, limiter=self._thread)
        except (sqlite3.Error, OSError, RuntimeError) as error:
            words = f"cannot write {self.folder}: {error}; free some space or check the permissions"
            for batch in batches:
                batch.error = LogUnwritable(words)
            return
        self.seq, self._sum = seq, previous
        self._committed_at = monotonic()
        for entry in chain.from_iterable(batch.entries or () for batch in batches):
            for callback in self._followers:
                callback(entry)
            for subscription in self._subscriptions:
                subscription.offer(entry)

    def _write(self, rows: list[Row]) -> None:
        try:
            insert(self._connection, rows)
        except sqlite3.DatabaseError as error:
            if self.folder is None or getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise
            # Damage that reading does not show, such as a broken free list.
            self._rebuild(self.folder)
            insert(self._connection, rows)
        # The events are on disk whether or not this number is written.
        with contextlib.suppress(OSError):
            if self._head:
                self._head.write(rows[-1][0])

    def broadcast(self, delta: Delta) -> None:
        """Send a delta to the current subscribers. It is not stored."""
        for subscription in self._subscriptions:
            subscription.offer(delta)

    def subscribe(self, after: int = 0) -> Subscription:
        """Return an iterator over all events after `after`, stored and future, and future deltas."""
        subscription = Subscription(self, after)
        self._subscriptions.add(subscription)
        return subscription

    def follow(self, callback: Callable[[Entry], None]) -> None:
        """Call `callback` for every future event, in order, before its `append` returns."""
        self._followers.append(callback)

    @property
    def subscribers(self) -> int:
        return len(self._subscriptions)

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    def end_subscriptions(self) -> None:
        """End every subscription, once it has delivered the events so far."""
        for subscription in tuple(self._subscriptions):
            subscription.close()

    def close(self) -> None:
        self.end_subscriptions()
        self._connection.close()
        if self._head:
            self._head.close()

    async def aclose(self) -> None:
        """Like `close`, but other tasks run while the last data is written to disk."""
        self.end_subscriptions()
        await anyio.to_thread.run_sync(self._connection.close, limiter=self._thread)
        self.close()

    def _pages(self, after: int, damage: Damage) -> Iterator[list[Row]]:
        last, acknowledged = after, self.seq
        damage.first_page = damage.first_page or self._is_mended
        for page in verify_rows(self._connection, damage, after=after, upto=acknowledged):
            last = page[-1][0] if page else last
            yield page
        if acknowledged > max(last, *damage.unreadable, 0):
            damage.lost_after, damage.acknowledged = last, acknowledged


class Subscription:
    """An async iterator over one log, which ends only when it or the log is closed."""

    def __init__(self, log: Log, after: int) -> None:
        self._log = log
        self._cursor = after
        self._queue: deque[Entry | Delta] = deque()
        self._stored: Iterator[Entry] | None = log.read(after)
        self._wake: anyio.Event | None = None
        """Not None while the iterator waits."""
        self._closed = False

    def offer(self, item: Entry | Delta) -> None:
        if len(self._queue) >= _QUEUE:
            # Events are on disk and will be read again; deltas may be lost, because an event with the whole follows.
            self._queue.clear()
            self._stored = self._log.read(self._cursor)
        else:
            self._queue.append(item)
        self._awake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Entry | Delta:
        while (item := self.next_ready()) is None:
            if self._closed:
                raise StopAsyncIteration
            self._wake = anyio.Event()
            await self._wake.wait()
            self._wake = None
        return item

    def next_ready(self) -> Entry | Delta | None:
        """Return the next item if it is available without waiting, else None."""
        if self._stored and (entry := next(self._stored, None)):
            self._cursor = entry.seq
            return entry
        self._stored = None
        while self._queue:
            item = self._queue.popleft()
            if not isinstance(item, Entry):
                return item
            if item.seq > self._cursor:
                self._cursor = item.seq
                return item
        return None

    def close(self) -> None:
        """End the iteration. Events so far are still delivered, up to a limit and without gaps."""
        self._log.unsubscribe(self)
        self._closed = True
        if self._stored is not None:
            # Read now: the log itself may be closed next.
            rest = list(islice(self._stored, _QUEUE))
            self._queue = deque(rest) if len(rest) == _QUEUE else deque([*rest, *self._queue])
            self._stored = None
        self._awake()

    def _awake(self) -> None:
        if self._wake is not None:
            self._wake.set()


def _event(raw_kind: bytes, raw_body: bytes) -> Event:
    kind, body = raw_kind.decode("ascii", "replace"), raw_body.decode("ascii", "replace")
    try:
        return decode(kind, body)
    except BadEvent:
        # The checksum holds, so a newer version wrote this shape.
        with contextlib.suppress(BadEvent):
            return Unknown(kind=kind, body=cast("dict[str, object]", parse_json(body)))
        return Unknown(kind=kind, body={"text": body})


def _chain_again(rows: Iterator[Row]) -> Iterator[Row]:
    previous = GENESIS
    for seq, at, kind, body, _ in rows:
        previous = chain_checksum(previous, seq, at, kind, body)
        yield seq, at, kind, body, previous


def _finish_rebuild(folder: Path) -> None:
    """Swap in a rebuilt store; also completes a swap that a crash interrupted."""
    rebuilt, store = folder / _REBUILT, folder / STORE
    if not rebuilt.exists():
        return
    kept = folder / f"log.damaged-{1 + len(list(folder.glob('log.damaged-*.sqlite')))}.sqlite"
    # A write-ahead log that stays next to another store would be replayed into it.
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            os.link(f"{store}{suffix}", f"{kept}{suffix}")
    for suffix in ("-wal", "-shm"):
        Path(f"{store}{suffix}").unlink(missing_ok=True)
    rebuilt.replace(store)
