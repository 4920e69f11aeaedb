"""`kill -9` of `pinfold queue run` at random moments: no task is lost, and nothing is done twice."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.crash_suite.kills import side_by_side
from bench.crash_suite.launch import Ended, Forkserver
from bench.crash_suite.oracle import ONCE, SOUND, WENT_ON, Tally, read_store
from bench.crash_suite.places import Place, cell, new_place

EVERY_TASK = "every task ends as done, with its answer"
DONE_ALL = "every action of a task has one end, and its effect if that is ok"
QUEUE_LAWS = (EVERY_TASK, ONCE, DONE_ALL, SOUND, WENT_ON)
TASKS = 20
_TOKENS = ("t1", "t2", "t3", "t4", "t5", "t6")
_WORK = [
    {"text": "First.", "calls": [cell("t1"), cell("t2")], "delay_s": 0.005},
    {"text": "Then.", "calls": [cell("t3"), cell("t4"), cell("t5")], "delay_s": 0.005},
    {"text": "Last.", "calls": [cell("t6")], "delay_s": 0.005},
    {"text": "Done."},
]


def kill_queues(servers: list[Forkserver], kills: int, seed: int, weakened: str | None = None) -> Tally:
    """Queues of 20 tasks, one after the other on every server, until `kills` have hit."""
    orders = {"weakened": weakened} if weakened else {}

    def trial(number: int) -> Callable[[Forkserver], Tally]:
        return lambda server: kill_queue(server, random.Random(f"{seed}/{number}"), TASKS, kills, **orders)

    return side_by_side(
        servers, [trial(number) for number in range(kills)], lambda so_far: so_far.seen["kills"] >= kills
    )


def kill_queue(server: Forkserver, chance: random.Random, tasks: int, kills: int, **orders: str) -> Tally:
    """One queue, killed at most `kills` times, run until every task is over."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="crash-queue-") as temporary:
        place = new_place(Path(temporary), _WORK)
        folders = [place.workspace / f"task{number}" for number in range(tasks)]
        for folder in folders:
            folder.mkdir()
            ended = server.start(place, _add(place, folder)).until()
            if ended.code != 0:
                raise RuntimeError(f"a task could not be added: {place.complaints.read_text()}")
        ended = _run(server, place, chance, tally, kills, orders)
        tally.judge(WENT_ON, ended.code == 0, f"{ended.code}: {place.complaints.read_text()[-3000:]}")
        _judge(tally, place, folders)
    return tally


def _run(
    server: Forkserver, place: Place, chance: random.Random, tally: Tally, kills: int, orders: dict[str, str]
) -> Ended:
    """Again and again, until it ends by itself."""
    while True:
        after_s = chance.uniform(0.05, 1.5) if tally.seen["kills"] < kills else None
        ended = server.start(place, ["queue", "run", "-j", "2"], **orders).until(after_s)
        if not ended.killed:
            return ended
        tally.seen["kills"] += 1


def _add(place: Place, folder: Path) -> list[str]:
    how = ("--model", f"scripted:{place.script}", "--sandbox", "unsafe-local", "--workspace", str(folder))
    return ["queue", "add", "Do the work.", *how]


def _judge(tally: Tally, place: Place, folders: list[Path]) -> None:
    with sqlite3.connect(place.data / "pinfold" / "queue" / "tasks.db") as db:
        rows = db.execute("SELECT session, workspace, state, text FROM tasks").fetchall()
    tally.judge(SOUND, len(rows) == len(folders), rows)
    for session, workspace, state, text in rows:
        tally.judge(EVERY_TASK, (state, text) == ("done", "Done."), (session, state, text))
        path = Path(workspace) / "ledger"
        ledger = path.read_text(encoding="ascii").split() if path.exists() else []
        for token in _TOKENS:
            tally.judge(ONCE, ledger.count(token) <= 1, (session, token, ledger))
        reading = read_store(place.sessions / session)
        tally.judge(SOUND, reading.integrity == "ok" and reading.chain_holds, session)
        ends = [end["outcome"] for end in reading.ends()]
        tally.seen["actions of unknown outcome"] += ends.count("outcome_unknown")
        has_all = len(ends) == len(_TOKENS) and ends.count("ok") <= len(ledger)
        tally.judge(DONE_ALL, has_all, (session, ends, ledger))
