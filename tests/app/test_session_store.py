"""Sessions on disk: found, named, removed, kept within bounds."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pinfold.app import NoSuchSession, SessionBusy, SessionStore, fork
from pinfold.app.paths import contents_dir
from pinfold.app.storage.session_store import claim
from pinfold.events import Event, SessionChanged, SessionId, SessionOpened, TurnId, UserSpoke
from pinfold.log import Log
from pinfold.sandbox.file_history.shared_contents import link_contents

pytestmark = pytest.mark.unit


async def shelve(session: str, *events: Event, days_ago: float = 0, blob: bytes = b"") -> Path:
    folder = SessionStore().folder_of(SessionId(session))
    folder.mkdir(mode=0o700)
    log = Log(folder, SessionId(session), clock=lambda: datetime.now(UTC) - timedelta(days=days_ago))
    await log.append(UserSpoke(turn=TurnId("t_1"), text=f"hello from {session}"), *events)
    if blob:
        log.blobs.put(blob)
    log.close()
    return folder


def opened_in(workspace: Path) -> SessionOpened:
    return SessionOpened(version="1", workspace=str(workspace), model="m", mode="ask", sandbox="namespaces")


async def test_a_session_is_found_by_id_beginning_name_and_last() -> None:
    await shelve("s_aaa111", days_ago=2)
    await shelve("s_bbb222", SessionChanged(title="report"), days_ago=1)
    await shelve("s_bbb333")
    found = {name: SessionStore().find(name)[0] for name in ("s_aaa111", "s_a", "report", "last", "s_bbb2")}
    assert found == {
        "s_aaa111": "s_aaa111",
        "s_a": "s_aaa111",
        "report": "s_bbb222",
        "last": "s_bbb333",
        "s_bbb2": "s_bbb222",
    }


async def test_the_last_session_of_a_folder_is_not_that_of_another(tmp_path: Path) -> None:
    for number, (session, folder) in enumerate((("s_old", "a"), ("s_new", "a"), ("s_other", "b"))):
        place = SessionStore().folder_of(SessionId(session))
        place.mkdir(mode=0o700)
        log = Log(place, SessionId(session), clock=lambda days=number: datetime.now(UTC) + timedelta(days=days))
        await log.append(opened_in(tmp_path / folder))
        log.close()
    assert SessionStore().last_in(tmp_path / "a") == "s_new"
    assert SessionStore().last_in(tmp_path / "b") == "s_other"
    with pytest.raises(NoSuchSession, match=r"no session has worked in .*/c yet; `pinfold` begins one"):
        SessionStore().last_in(tmp_path / "c")


async def test_a_fork_that_nobody_opened_is_not_the_last_session(tmp_path: Path) -> None:
    store = SessionStore()
    await shelve("s_source", opened_in(tmp_path), days_ago=2)
    new, _ = await fork(store, SessionId("s_source"))
    assert store.sessions()[0].id == new
    assert (store.last_in(tmp_path), store.find("last")[0]) == ("s_source", "s_source")
    log = Log(store.folder_of(new), new)
    await log.append(opened_in(tmp_path))
    log.close()
    assert (store.last_in(tmp_path), store.find("last")[0]) == (new, new)
    store.remove(SessionId("s_source"))
    second, _ = await fork(store, new)
    store.remove(new)
    assert store.last_in(tmp_path) == second


@pytest.mark.parametrize("name", ["s_bbb", "nothing", "", "../x", "s_../..", "s_"])
async def test_a_name_that_fits_none_or_several_is_refused(name: str) -> None:
    await shelve("s_bbb222")
    await shelve("s_bbb333")
    with pytest.raises(NoSuchSession):
        SessionStore().find(name)


def test_without_any_session_it_is_said_how_to_begin_one() -> None:
    with pytest.raises(NoSuchSession, match="there are no sessions yet; `pinfold` begins one"):
        SessionStore().find("last")


async def test_sessions_are_listed_the_last_used_first_with_what_was_said() -> None:
    await shelve("s_old", days_ago=3)
    await shelve("s_new")
    assert [(item.id, item.summary.title, item.summary.cut_off) for item in SessionStore().sessions()] == [
        ("s_new", "hello from s_new", True),
        ("s_old", "hello from s_old", True),
    ]


async def test_a_list_tells_what_is_new_in_a_session_and_forgets_one_that_is_gone() -> None:
    folder = await shelve("s_old", days_ago=3)
    await shelve("s_new")
    store = SessionStore()
    assert [item.id for item in store.sessions(1)] == ["s_new"]
    log = Log(folder, SessionId("s_old"))
    for title in ("one", "two"):  # while it is open, so that only its write-ahead log changes
        await log.append(SessionChanged(title=title))
        assert [(item.id, item.summary.title) for item in store.sessions(1)] == [("s_old", title)]
        assert store.find(title)[0] == "s_old"
    log.close()
    store.remove(SessionId("s_old"))
    assert [item.id for item in store.sessions()] == ["s_new"]


async def test_gc_removes_what_is_too_old_then_the_oldest_over_the_quota() -> None:
    await shelve("s_ancient", days_ago=40)
    await shelve("s_older", days_ago=2, blob=b"x" * 500_000)
    await shelve("s_newer", blob=b"y" * 500_000)
    gone = SessionStore().collect(keep_days=30, quota_bytes=700_000)
    assert [item.id for item in gone] == ["s_ancient", "s_older"]
    assert [item.id for item in SessionStore().sessions()] == ["s_newer"]


async def test_with_the_last_session_of_a_folder_goes_what_its_files_held(tmp_path: Path) -> None:
    places: dict[str, Path] = {}
    for name in ("a", "b"):
        place = places[name] = contents_dir(tmp_path / name) or tmp_path
        place.mkdir(parents=True)
        (place / "small.sqlite").write_bytes(b"x" * 500_000)
        for number in (1, 2):
            folder = await shelve(f"s_{name}{number}", days_ago=number + 9 * (name == "a"))
            (folder / "state/files").mkdir(parents=True)
            link_contents(folder / "state/files", place)
    (places["a"].parent / "of-no-session").mkdir()
    (places["a"].parent / "no-folder").touch()
    SessionStore().folder_of(SessionId("s_damaged")).mkdir()
    (SessionStore().folder_of(SessionId("s_damaged")) / "log.sqlite").write_text("no log")
    SessionStore().remove(SessionId("s_b1"))
    assert sorted(place.name for place in places["a"].parent.iterdir()) == sorted(
        ["no-folder", places["a"].name, places["b"].name]
    )
    gone = SessionStore().collect(keep_days=30, quota_bytes=700_000)
    assert [item.id for item in gone] == ["s_a2", "s_a1"]
    assert [name for name, place in places.items() if place.exists()] == ["b"]


@pytest.mark.parametrize("way", ["collect", "remove_all"])
async def test_removing_many_sessions_lists_the_others_as_often_as_removing_one(way: str) -> None:
    store = SessionStore()
    listings: list[str] = []
    is_counting = False

    def note(event: str, args: tuple[object, ...]) -> None:
        if is_counting and event == "os.scandir" and str(args[0]).rstrip("/") == str(store.root):
            listings.append(event)

    sys.addaudithook(note)
    counted: list[int] = []
    for number in (1, 7):
        names = [SessionId(f"s_{number}{place}") for place in range(number)]
        for name in names:
            await shelve(name, days_ago=40)
        listings.clear()
        is_counting = True
        gone = [one.id for one in store.collect(keep_days=30, quota_bytes=1e9)] if way == "collect" else names
        assert way == "collect" or list(store.remove_all(names)) == names
        is_counting = False
        assert sorted(gone) == names
        counted.append(len(listings))
    assert counted[0] == counted[1] > 0
    assert store.sessions() == []


async def test_removing_several_stops_at_a_live_one_and_removes_the_contents_of_those_before(tmp_path: Path) -> None:
    store, place = SessionStore(), contents_dir(tmp_path) or tmp_path
    place.mkdir(parents=True)
    folder = await shelve("s_first")
    (folder / "state/files").mkdir(parents=True)
    link_contents(folder / "state/files", place)
    held = claim(await shelve("s_live"))
    assert held is not None
    removing = store.remove_all([SessionId("s_first"), SessionId("s_live")])
    assert next(removing) == "s_first"
    with pytest.raises(SessionBusy, match="s_live is in use"):
        next(removing)
    held.release()
    assert not place.exists()


async def test_what_a_session_left_in_its_view_costs_no_other_session_its_place() -> None:
    await shelve("s_older", days_ago=2)
    folder = await shelve("s_hostile")
    deep = folder / "view" / "files"
    deep.mkdir(parents=True)
    with (deep / "all hole").open("wb") as file:
        file.truncate(1 << 40)
    for _ in range(1100):
        deep /= "d"
        deep.mkdir()
    try:
        assert [item.id for item in SessionStore().sessions()] == ["s_hostile", "s_older"]
        assert SessionStore().collect(keep_days=30, quota_bytes=700_000) == []
    finally:
        while deep != folder:
            deep.rmdir()
            deep = deep.parent
            (deep / "all hole").unlink(missing_ok=True)


async def test_a_live_session_is_neither_removed_nor_collected() -> None:
    folder = await shelve("s_live", days_ago=100)
    held = claim(folder)
    assert held is not None
    with pytest.raises(SessionBusy, match="in use by process"):
        SessionStore().remove(SessionId("s_live"))
    assert SessionStore().collect(keep_days=1, quota_bytes=0) == []
    held.release()
    assert [item.id for item in SessionStore().collect(keep_days=1, quota_bytes=0)] == ["s_live"]


async def test_an_unreadable_session_is_listed_and_can_be_removed() -> None:
    folder = await shelve("s_broken")
    (folder / "log.sqlite").write_bytes(b"not a database at all" * 500)
    assert [item.summary.title for item in SessionStore().sessions()] == ["(unreadable)"]
    assert SessionStore().collect(keep_days=0.001, quota_bytes=0) == []
    SessionStore().remove(SessionId("s_broken"))
    assert SessionStore().sessions() == []


async def test_a_session_that_is_just_beginning_is_not_collected() -> None:
    SessionStore().root.joinpath("s_begun").mkdir()
    assert SessionStore().collect(keep_days=1, quota_bytes=1e300) == []


async def test_looking_changes_nothing_on_disk() -> None:
    folder = await shelve("s_quiet")
    before = sorted(path.name for path in folder.rglob("*"))
    assert SessionStore().sessions()[0].summary.title == "hello from s_quiet"
    assert sorted(path.name for path in folder.rglob("*")) == [*before]
