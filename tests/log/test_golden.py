"""Logs written by the first version, never edited: they load, fold and come out as they went in, for ever."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import cast

import pytest
from inline_snapshot import snapshot

from pinfold.engine import fold
from pinfold.events import (
    ActionFinished,
    BlobId,
    Entry,
    Json,
    Noticed,
    SessionId,
    Unknown,
    decode_line,
    entry_line,
    parse_json,
)
from pinfold.log import Damage, Log, Summary, import_file, summarise

pytestmark = [pytest.mark.unit, pytest.mark.installed]

GOLDEN = Path(__file__).parents[1] / "logs" / "v1"
OURS = ("plain", "recovered", "rewound")
"""Written by this version's own fields; `newer` has kinds and fields that nobody knows yet."""
TOLD = {"seq", "session", "at", "kind", "turn", "id", "text", "workspace", "observation"}


def lines_of(name: str) -> list[str]:
    return (GOLDEN / f"{name}.jsonl").read_text(encoding="ascii").splitlines()


def entries_of(name: str) -> list[Entry]:
    entries = [decode_line(line) for line in lines_of(name)]
    assert all(isinstance(entry, Entry) for entry in entries)
    return [entry for entry in entries if isinstance(entry, Entry)]


def holds(now: Json, then: Json) -> bool:
    """Everything that was written then; fields that came later may stand beside it."""
    if isinstance(then, dict):
        fields = cast("dict[str, Json]", then)
        return all(key in now and holds(now[key], item) for key, item in fields.items())
    if isinstance(then, list):
        items = cast("list[Json]", then)
        return len(now) == len(items) and all(map(holds, now, items))
    return now == then


def test_the_golden_files_are_the_ones_that_were_put_there() -> None:
    lines = (GOLDEN / "SHA256SUMS").read_text("ascii").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = {
        path.relative_to(GOLDEN).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in GOLDEN.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    assert found == listed
    assert len(found) >= 5


@pytest.mark.parametrize("name", OURS)
def test_every_field_of_ours_is_written_again_the_same(name: str) -> None:
    for line, entry in zip(lines_of(name), entries_of(name), strict=True):
        assert holds(parse_json(entry_line(entry)), parse_json(line)), line


@pytest.mark.parametrize("name", [*OURS, "newer"])
def test_a_golden_log_is_imported_and_exported_without_losing_a_byte(name: str, tmp_path: Path) -> None:
    session = SessionId("s_imported")
    count, origin = import_file(GOLDEN / f"{name}.jsonl", tmp_path, session)
    log, damage = Log(tmp_path, session), Damage()
    exported = [line.replace(f'"{session}"', f'"{origin}"', 1) for line in log.lines(damage)]
    log.close()
    assert (len(exported), bool(damage)) == (count, False)
    assert exported == lines_of(name)


def test_what_is_newer_than_we_are_is_kept() -> None:
    entries = entries_of("newer")
    assert [entry.event.kind for entry in entries if isinstance(entry.event, Unknown)] == snapshot(
        ["ActionTainted", "Ünknown kind"]
    )
    for line, entry in zip(lines_of("newer"), entries, strict=True):
        written, ours = parse_json(line), parse_json(entry_line(entry))
        if isinstance(entry.event, Unknown):
            assert ours == written
        else:
            assert {key: written[key] for key in TOLD & written.keys()} == {
                key: ours[key] for key in TOLD & written.keys()
            }


@pytest.mark.parametrize("name", [*OURS, "newer"])
def test_folding_a_golden_log_is_prefix_stable(name: str) -> None:
    entries = entries_of(name)
    for cut in range(len(entries) + 1):
        assert fold(entries[cut:], fold(entries[:cut])) == fold(entries)


def test_the_plain_session_folds_to_what_it_was() -> None:
    state = fold(entries_of("plain"))
    assert (state.title, state.cells, state.usage.total, dict(state.open), state.turn) == snapshot(
        ("golden", 3, 942, {}, None)
    )
    assert [(turn.steps, turn.end, turn.messages[-1].text) for turn in state.turns] == snapshot(
        [(3, "ended", "The sum is 5050."), (1, "ended", "You are welcome.")]
    )


def test_the_recovered_session_folds_to_what_it_was() -> None:
    entries = entries_of("recovered")
    state = fold(entries)
    assert (state.title, state.cells, sorted(state.granted), dict(state.open), state.turn) == snapshot(
        ("letters", 2, [], {}, None)
    )
    assert [(turn.id, turn.steps, turn.end) for turn in state.turns] == snapshot(
        [("t_000000000001", 4, "interrupted"), ("t_000000000002", 0, "failed"), ("t_000000000003", 1, "ended")]
    )
    ends = [entry.event.outcome for entry in entries if isinstance(entry.event, ActionFinished)]
    assert ends == snapshot(["ok", "ok", "denied", "ok", "ok", "denied", "ok", "outcome_unknown", "ok", "denied"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A copy: opening a store may write beside it."""
    return Path(shutil.copytree(GOLDEN / "store", tmp_path / "store"))


def test_the_golden_store_opens_and_every_event_in_it_verifies(store: Path) -> None:
    session = entries_of("plain")[0].session
    log, damage = Log(store, session), Damage()
    assert list(log.lines(damage)) == lines_of("plain")
    assert list(log.read(damage=damage)) == entries_of("plain")
    assert not damage
    assert log.seq == len(lines_of("plain"))
    named = {blob for entry in log.read() for blob in getattr(entry.event, "blobs", ())}
    assert named == set(log.blobs.all())
    assert {len(log.blobs.get(BlobId(blob))) for blob in named} == {10011}
    log.close()


def test_the_golden_store_is_summarised(store: Path) -> None:
    assert summarise(store) == snapshot(
        Summary(
            events=29,
            began="2026-11-15T05:10:39.368Z",
            last="2026-11-15T05:10:39.780Z",
            title="golden",
            named=True,
            workspace="/tmp/golden/work",
        )
    )


async def test_the_golden_store_can_be_written_on(store: Path) -> None:
    session = entries_of("plain")[0].session
    log = Log(store, session)
    (entry,) = await log.append(Noticed(text="still here"))
    log.close()
    log, damage = Log(store, session), Damage()
    assert list(log.read(damage=damage)) == [*entries_of("plain"), entry]
    assert not damage
    log.close()


def test_the_golden_bundle_is_the_golden_store(store: Path, tmp_path: Path) -> None:
    session = entries_of("plain")[0].session
    folder = tmp_path / "imported"
    folder.mkdir()
    assert import_file(GOLDEN / "plain.pinfold", folder, session) == (len(lines_of("plain")), session)
    log, golden = Log(folder, session), Log(store, session)
    assert list(log.lines(Damage())) == list(golden.lines(Damage()))
    assert [(blob, log.blobs.get(blob)) for blob in log.blobs.all()] == [
        (blob, golden.blobs.get(blob)) for blob in golden.blobs.all()
    ]
    log.close()
    golden.close()


def test_the_rewound_session_folds_to_what_it_was() -> None:
    state = fold(entries_of("rewound"))
    assert (state.cells, state.path, state.checkpoints) == (3, (1, 2), True)
    assert state.effects_of([2]) == ('send {"to":"ann"}',)
    assert [note.split(".")[0] for note in state.notes] == snapshot(
        [
            "[The user undid cell 2: variables and workspace files are as after cell 1",
            "[The session was reopened",
            "[The user redid cell 2: variables and workspace files are as after cell 2",
        ]
    )
