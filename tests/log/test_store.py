"""Append, read, subscribe: in order, whole, on disk before anyone hears of it, whatever is cancelled or killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.events.strategies import events as any_event

from pinfold.events import Delta, Entry, Event, Noticed, NotPlain, SessionId, TextDelta, TurnId, Unknown
from pinfold.log import Damage, Log, LogUnreadable, LogUnwritable, Subscription

pytestmark = pytest.mark.unit

SESSION = SessionId("s_test")
PATIENCE_S = 20.0


def notes(*numbers: int) -> list[Event]:
    return [Noticed(text=str(number)) for number in numbers]


def a_folder_in(folder: Path) -> Path:
    """A new one for each example of a law."""
    new = folder / str(len(list(folder.iterdir())))
    new.mkdir()
    return new


def said(entries: list[Entry]) -> list[str]:
    return [entry.event.text for entry in entries if isinstance(entry.event, Noticed)]


async def taken(feed: Subscription, upto: int) -> list[Entry | Delta]:
    """Everything until event number `upto`."""
    items: list[Entry | Delta] = []
    with anyio.fail_after(PATIENCE_S):
        async for item in feed:
            items.append(item)
            if isinstance(item, Entry) and item.seq >= upto:
                break
    return items


def numbers(items: list[Entry | Delta]) -> list[int]:
    return [item.seq for item in items if isinstance(item, Entry)]


@pytest.mark.installed
async def test_what_is_appended_is_read_after_reopening(tmp_path: Path) -> None:
    log = Log(tmp_path, SESSION)
    written = [*await log.append(*notes(1, 2)), *await log.append(*notes(3))]
    assert list(log.read()) == written
    assert list(log.read(after=2)) == written[2:]
    log.close()
    log, damage = Log(tmp_path, SESSION), Damage()
    assert list(log.read(damage=damage)) == written
    assert not damage
    assert log.seq == 3
    log.close()


@settings(max_examples=25)
@given(events=st.lists(any_event, max_size=6))
def test_any_events_are_read_as_they_were_written(events: list[Event], tmp_path: Path) -> None:
    folder = a_folder_in(tmp_path)

    async def through_the_disk() -> list[Event]:
        log = Log(folder, SESSION)
        await log.append(*events)
        log.close()
        log, damage = Log(folder, SESSION), Damage()
        read = [entry.event for entry in log.read(damage=damage)]
        log.close()
        assert not damage
        return read

    assert anyio.run(through_the_disk) == events


async def test_appending_nothing_writes_nothing() -> None:
    log = Log(None, SESSION)
    assert await log.append() == ()
    assert log.seq == 0


async def test_what_is_not_plain_is_refused_before_anything_is_written() -> None:
    log = Log(None, SESSION)
    with pytest.raises(NotPlain):
        await log.append(Noticed(text="fine"), Unknown(kind="New", body={"x": float("nan")}))
    assert list(log.read()) == []
    assert [entry.seq for entry in await log.append(*notes(1))] == [1]


async def test_a_list_is_not_taken_for_an_event() -> None:
    log = Log(None, SESSION)
    with pytest.raises(NotPlain, match="a list is not an event"):
        await log.append(notes(1, 2))  # pyright: ignore[reportArgumentType]
    assert list(log.read()) == []


async def test_a_kind_that_is_no_text_harms_nobody_else() -> None:
    log = Log(None, SESSION)
    strange = Unknown(kind="\ud800", body={})
    await log.append(strange)
    await log.append(*notes(1))
    assert [entry.event for entry in log.read()] == [strange, *notes(1)]


async def test_appends_that_wait_together_share_a_commit(tmp_path: Path) -> None:
    log = Log(tmp_path, SESSION)
    statements: list[str] = []
    log._connection.set_trace_callback(statements.append)  # pyright: ignore[reportPrivateUsage]
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(log.append, *notes(number))
    assert statements.count("COMMIT") <= 2  # at most the first alone, then all who waited for it
    assert said(list(log.read())) == [str(number) for number in range(50)]
    log.close()


async def test_followers_hear_first_then_subscribers_then_the_writer() -> None:
    log, heard = Log(None, SESSION), list[str]()
    log.follow(lambda entry: heard.append(f"follower {entry.seq}"))

    async def subscriber() -> None:
        async with log.subscribe() as feed:
            await taken(feed, 1)
            heard.append("subscriber 1")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subscriber)
        await anyio.lowlevel.checkpoint()
        await log.append(*notes(1))
        assert heard == ["follower 1"]
    assert heard == ["follower 1", "subscriber 1"]


async def test_what_is_not_committed_yet_is_shown_to_nobody(tmp_path: Path) -> None:
    log = Log(tmp_path, SESSION)
    await log.append(*notes(1))
    connection = log._connection  # pyright: ignore[reportPrivateUsage]
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO events SELECT seq + 1, at, kind, body, sum FROM events")
    damage = Damage()
    assert said(list(log.read(damage=damage))) == ["1"]
    assert not damage
    connection.execute("ROLLBACK")
    log.close()


async def test_a_reader_beside_the_owner_sees_no_damage_in_what_comes_later(tmp_path: Path) -> None:
    owner = Log(tmp_path, SESSION)
    await owner.append(*notes(1))
    reader, damage = Log(tmp_path, SESSION), Damage()
    reading = reader.read(damage=damage)
    assert next(reading).seq == 1
    await owner.append(*notes(2, 3))
    assert said(list(reading)) == []
    assert not damage
    reader.close()
    owner.close()


async def test_a_subscriber_gets_the_past_then_the_future_with_deltas_between() -> None:
    log = Log(None, SESSION)
    await log.append(*notes(1, 2))
    delta = TextDelta(turn=TurnId("t"), text="...")
    async with log.subscribe() as feed:
        assert numbers(await taken(feed, 2)) == [1, 2]
        log.broadcast(delta)
        await log.append(*notes(3))
        items = await taken(feed, 3)
    assert items[0] == delta
    assert numbers(items) == [3]
    assert len(list(log.read())) == 3


async def test_a_subscriber_that_lags_is_served_from_disk_and_misses_no_event() -> None:
    log = Log(None, SESSION)
    async with log.subscribe() as feed:
        for _ in range(13):
            log.broadcast(TextDelta(turn=TurnId("t"), text="lost at most"))
            await log.append(*notes(*range(1000)))
        first = await taken(feed, 5000)
        await log.append(*notes(0))
        rest = await taken(feed, 13_001)
    assert numbers(first + rest) == list(range(1, 13_002))


async def test_a_subscription_ends_when_it_or_the_log_is_closed(tmp_path: Path) -> None:
    log = Log(tmp_path, SESSION)
    await log.append(*notes(1, 2))
    one, other = log.subscribe(), log.subscribe(after=2)
    one.close()
    await log.append(*notes(3))
    log.close()
    with anyio.fail_after(PATIENCE_S):
        assert [item.seq async for item in one if isinstance(item, Entry)] == [1, 2]
        assert [item.seq async for item in other if isinstance(item, Entry)] == [3]


async def test_closing_wakes_who_waits() -> None:
    log = Log(None, SESSION)

    async def wait() -> None:
        async with log.subscribe() as feed:
            assert [item async for item in feed] == []

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            log.close()


@settings(max_examples=15)
@given(
    writers=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), min_size=1, max_size=5),
    readers=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)), min_size=1, max_size=4),
)
def test_no_subscriber_sees_a_gap_or_an_event_twice(
    writers: list[list[int]], readers: list[tuple[int, int]], tmp_path: Path
) -> None:
    total = sum(map(sum, writers))

    async def write(log: Log, sizes: list[int]) -> None:
        for size in sizes:
            entries = await log.append(*notes(*range(size)))
            assert numbers([*entries]) == list(range(entries[0].seq, entries[0].seq + size))

    async def read(log: Log, after: int, patience: int) -> None:
        for _ in range(patience):
            await anyio.lowlevel.checkpoint()
        async with log.subscribe(after) as feed:
            if after < total:
                assert numbers(await taken(feed, total)) == list(range(after + 1, total + 1))

    folder = a_folder_in(tmp_path)

    async def together() -> None:
        log = Log(folder, SESSION)
        async with anyio.create_task_group() as tasks:
            for sizes in writers:
                tasks.start_soon(write, log, sizes)
            for after, patience in readers:
                tasks.start_soon(read, log, after, patience)
        damage = Damage()
        assert len(list(log.read(damage=damage))) == total
        assert not damage
        log.close()

    anyio.run(together)


async def test_a_cancelled_append_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    log = Log(tmp_path, SESSION)
    scopes: list[anyio.CancelScope] = []

    async def write(number: int) -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await log.append(*notes(number, number, number))

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(write, number)
            if number % 3 == 0:
                await anyio.lowlevel.checkpoint()
                scopes[-1].cancel()
    damage = Damage()
    words = said(list(log.read(damage=damage)))
    assert not damage
    assert all(words[start : start + 3] == [words[start]] * 3 for start in range(0, len(words), 3))
    assert len(set(words)) == 30
    assert log.seq == 90
    log.close()


async def test_a_full_disk_is_said_loses_nothing_and_is_got_over(tmp_path: Path) -> None:
    log = Log(tmp_path, SESSION)
    connection = log._connection  # pyright: ignore[reportPrivateUsage]
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    heard: list[int] = []
    log.follow(lambda entry: heard.append(entry.seq))

    async def fill_it_up() -> None:
        while True:
            await log.append(Noticed(text="x" * 500), Noticed(text="y"))

    with pytest.raises(LogUnwritable, match="full; free some space") as caught:
        await fill_it_up()
    assert caught.value.exit_code == 75
    written = len(heard)
    connection.execute("PRAGMA max_page_count = 100000")
    (entry,) = await log.append(*notes(7))
    damage = Damage()
    assert [entry.seq for entry in log.read(damage=damage)] == heard == list(range(1, written + 2))
    assert entry.seq == written + 1
    assert not damage
    log.close()


async def test_everyone_who_shared_a_commit_hears_that_it_failed(tmp_path: Path) -> None:
    log = Log(tmp_path, SESSION)
    log._connection.execute("PRAGMA query_only = ON")  # pyright: ignore[reportPrivateUsage]
    failed: list[int] = []

    async def write(number: int) -> None:
        try:
            await log.append(*notes(number))
        except LogUnwritable:
            failed.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(write, number)
    assert sorted(failed) == [0, 1, 2, 3, 4]
    assert log.seq == 0
    log.close()


async def test_a_head_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "head").symlink_to("/dev/full")
    log = Log(tmp_path, SESSION)
    await log.append(*notes(1))
    await log.append(*notes(2))
    assert said(list(log.read())) == ["1", "2"]
    log.close()


def test_a_store_of_a_newer_format_is_refused_clearly(tmp_path: Path) -> None:
    Log(tmp_path, SESSION).close()
    connection = sqlite3.connect(tmp_path / "log.sqlite")
    connection.executescript("PRAGMA user_version = 2; PRAGMA application_id = 0x50494E02")
    connection.close()
    with pytest.raises(LogUnreadable, match=r"log\.sqlite was written by a newer Pinfold \(format 2\); upgrade"):
        Log(tmp_path, SESSION)


def test_a_file_that_is_no_store_is_refused_clearly(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_bytes(b"not a database at all, but long enough to be looked at" * 100)
    with pytest.raises(LogUnreadable, match=r"log\.sqlite cannot be opened: file is not a database"):
        Log(tmp_path, SESSION)


def run_in_another_process(*lines: str) -> subprocess.Popen[str]:
    program = "\n".join(("import sys, anyio", "from pathlib import Path", "from pinfold.log import Log", *lines))
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.integration
def test_processes_that_create_a_store_at_once_all_succeed(tmp_path: Path) -> None:
    processes = [
        run_in_another_process(
            "print('ready', flush=True)",
            "for line in sys.stdin:",
            "    folder = Path(line.strip()); folder.mkdir(exist_ok=True)",
            "    Log(folder, 's').close()",
            "    print('opened', flush=True)",
        )
        for _ in range(3)
    ]
    outputs = [process.stdout for process in processes if process.stdout]
    assert [output.readline() for output in outputs] == ["ready\n"] * 3
    for number in range(20):
        for process in processes:
            assert process.stdin
            process.stdin.write(f"{tmp_path / str(number)}\n")
            process.stdin.flush()
        assert [output.readline() for output in outputs] == ["opened\n"] * 3
    for process in processes:
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


@pytest.mark.integration
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    process = run_in_another_process(
        "from pinfold.events import Noticed",
        "async def main():",
        f"    log = Log(Path({str(tmp_path)!r}), 's_test')",
        "    for number in range(1, 100_000):",
        "        (entry,) = await log.append(Noticed(text=str(number)))",
        "        print(entry.seq, flush=True)",
        "anyio.run(main)",
    )
    assert process.stdout
    acknowledged = [int(process.stdout.readline()) for _ in range(20)][-1]
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    log, damage = Log(tmp_path, SESSION), Damage()
    words = said(list(log.read(damage=damage)))
    assert words[:acknowledged] == [str(number) for number in range(1, acknowledged + 1)]
    assert not damage
    log.close()
