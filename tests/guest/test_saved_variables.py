"""Variables saved in one process come back in another as they were, or are named with a reason."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.guest.conftest import DATA_PYTHON
from tests.guest.sample_values import KINDS, TRAPS, Kind, is_standard

import pinfold

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

GUEST = Path(pinfold.__file__).parent / "guest"
TRIP = Path(__file__).with_name("round_trip.py")

Rows = dict[str, dict[str, Any]]


def trip(python: Path, folder: Path, kinds: list[Kind], *way: str) -> Rows:
    done = subprocess.run(
        [python, "-I", TRIP, GUEST, way[0], folder, *way[1:]],
        input=json.dumps([(kind.name, kind.cell, kind.check) for kind in kinds]),
        capture_output=True,
        text=True,
        timeout=500,
        env={
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "SECONDS": "3" if kinds == TRAPS else "100",  # some of those never end; others only wait for their turn
        },
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    assert len(rows) == len(kinds), done.stderr[-3000:]
    return {row["name"]: row for row in rows}


def there_and_back(python: Path, folder: Path, kinds: list[Kind]) -> Rows:
    """Each kind in one process, then in another, which saves it once more."""
    saved = trip(python, folder, kinds, "save")
    restored = trip(python, folder, kinds, "restore", "")
    return {name: {"saved": row, "restored": restored[name]} for name, row in saved.items()}


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python with the data packages, or where there is none, ours."""
    found = Path(os.environ.get(DATA_PYTHON, ""))
    return found if found.is_file() else Path(sys.executable)


def once(factory: pytest.TempPathFactory, name: str, work: Callable[[Path], Rows]) -> Rows:
    """What comes of it, also for the other processes that run these tests: it takes long."""
    folder = factory.mktemp(name)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return work(folder)
    shared = factory.getbasetemp().parent / f"{name}.json"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            shared.write_text(json.dumps(work(folder)), encoding="utf-8")
    return json.loads(shared.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def trips(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    kinds = [kind for kind in KINDS if str(python) != sys.executable or is_standard(kind)]
    return once(tmp_path_factory, "trips", lambda folder: there_and_back(python, folder, kinds))


def labels(row: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {label["name"]: (label["status"], label["reason"]) for label in row["labels"]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "_"))
def test_a_kind_of_value_comes_back_or_is_named_with_a_reason(kind: Kind, trips: Rows) -> None:
    if kind.name not in trips:
        pytest.skip(f"needs packages: set {DATA_PYTHON} to a Python that has them")
    row = trips[kind.name]
    assert row["saved"]["error"] == ""
    status, reason = labels(row["restored"])["x"]
    if kind.group == "lost":
        assert status == "lost"
        assert kind.lost in reason
    else:
        others = {name: label for name, label in labels(row["restored"]).items() if label[0] != "restored"}
        assert others == {}
        assert row["restored"]["error"] == ""
        assert kind.note in reason
        assert bool(kind.note) == bool(reason), reason


@pytest.mark.slow
def test_what_was_restored_can_be_saved_and_restored_again(python: Path, tmp_path: Path) -> None:
    kinds = [kind for kind in KINDS if kind.group != "lost" and (str(python) != sys.executable or is_standard(kind))]
    trips = there_and_back(python, tmp_path, kinds)
    for name, again in trip(python, tmp_path, kinds, "restore", "again").items():
        assert (name, trips[name]["restored"]["again"], again["error"]) == (name, "", "")
        assert (name, {status for status, _ in labels(again).values()}) == (name, {"restored"})


def test_at_least_nine_of_ten_kinds_come_back(trips: Rows) -> None:
    came = [name for name, row in trips.items() if labels(row["restored"])["x"][0] == "restored"]
    assert len(trips) >= 60
    assert len(came) >= 0.9 * len(trips)


@pytest.fixture(scope="session")
def traps(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    def work(folder: Path) -> Rows:
        saved = trip(python, folder, TRAPS, "save")
        restored = trip(python, folder, TRAPS, "restore", "")
        return {name: {"saved": row, "restored": restored[name]} for name, row in saved.items()}

    return once(tmp_path_factory, "traps", work)


@pytest.mark.parametrize("kind", TRAPS, ids=lambda kind: kind.name.replace(" ", "_"))
def test_what_would_come_back_wrong_is_lost_with_a_reason(kind: Kind, traps: Rows) -> None:
    row = traps[kind.name]
    assert row["saved"]["error"] == ""
    status, reason = labels(row["restored"])["x"]
    assert status == "lost"
    assert kind.lost in reason
    assert "\n" not in reason
    assert len(reason) <= 200


def saves(python: Path, cells: list[str], **named: Any) -> list[dict[str, Any]]:
    """What came of saving after each cell of one session, each time in a fork, for a host that keeps everything."""
    limits = {"cap_bytes": 50_000_000, "each_bytes": 30_000_000, "seconds": 3, **named}
    done = subprocess.run(
        [python, "-I", TRIP, GUEST, "saves", json.dumps(limits)],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["error"] for one in told] == [""] * len(cells)
    return told


def test_what_did_not_change_is_not_written_again(python: Path) -> None:
    first = "class C:\n    def m(self): return 1\nimport enum\nclass E(enum.Enum):\n    A = 1\nx = {n: [C()] for n in range(99)}\nf = lambda: x\ny = [x]"
    told = saves(python, [first, "", "x[5] = None", "y.append(1)"])
    assert len(told[0]["written"]) == 5
    assert told[1]["written"] == {}
    assert told[1]["entries"] == told[0]["entries"]
    assert list(told[2]["written"]) == [told[2]["entries"]["x"]["digest"]]
    assert list(told[3]["written"]) == [told[3]["entries"]["y"]["digest"]]


def test_a_new_column_of_a_large_frame_is_all_that_is_written(data_python: Path) -> None:
    begin = "import pandas as pd, numpy as np\nx = pd.DataFrame(np.random.default_rng(1).random((500_000, 4)))\ny = x"
    told = saves(data_python, [begin, "x['new'] = np.arange(500_000)"])
    assert sum(told[0]["written"].values()) > 16_000_000
    assert 4_000_000 < sum(told[1]["written"].values()) < 4_100_000
    assert told[1]["entries"]["y"] == {"name": "y", "kind": "alias", "of": "x"}
    assert len(told[1]["entries"]["x"]["needs"]) == 2


def test_variables_that_share_nothing_are_stored_apart(data_python: Path) -> None:
    cell = (
        "import pandas as pd, numpy as np, pyarrow as pa, functools, enum, dataclasses, collections\n"
        "from sklearn.ensemble import RandomForestClassifier as R\n"
        "from scipy import sparse, stats\n"
        "f = pd.DataFrame({'s': ['a'], 'c': pd.Categorical(['u']), 'n': [1.5]}); g = f.rename(columns=str.upper)\n"
        "s = f['s']; t = f['n'] * 2; a = pa.table({'a': [1]}); b = a.slice(0)\n"
        "m, n = (R(2).fit([[1.], [2.]], [1, 2]) for _ in 'ab')\n"
        "u = sparse.csr_matrix([[1]]); v = sparse.csr_matrix([[1]]); w = stats.norm(); x = stats.norm(2)\n"
        "p = functools.partial(np.add, 1); q = functools.partial(np.add, 2)\n"
        "C, D = (dataclasses.make_dataclass(name, ['x'], namespace={'__module__': '__main__'}) for name in 'CD')\n"
        "N, M = (collections.namedtuple(name, 'x') for name in 'NM'); E = enum.Enum('E', 'A')\n"
        "c = C(1); d = D([E.A]); e = [E.A]; h = N(1)\n"
    )
    (told,) = saves(data_python, [cell])
    digests = [entry["digest"] for entry in told["entries"].values() if entry["kind"] == "pickle"]
    assert len(digests) == 23
    assert len(set(digests)) == len(digests)


def test_large_variables_are_named_and_small_ones_are_kept(python: Path) -> None:
    cell = "a = b'a' * 31_000_000\nb = b'b' * 29_000_000\nc = b'c' * 28_000_000\nd = bytearray(100)\nh = [d]\nj = [b]"
    (told,) = saves(python, [cell])
    entries = told["entries"]
    assert entries["a"]["reason"] == "it is larger than the 30 MB kept of a variable"
    assert entries["b"]["reason"] == "the saved state of a session is limited to 50 MB"
    assert {name for name, entry in entries.items() if entry["kind"] != "lost"} == {"c", "d", "h"}
    assert sum(told["written"].values()) < 50_000_000


def test_a_program_that_replaced_what_we_use_is_saved_all_the_same(python: Path) -> None:
    cell = (
        "import pickle, _pickle, hashlib, json, signal, marshal, gc, copyreg, importlib, warnings, graphlib\n"
        "def no(*args, **named): raise RuntimeError('no')\n"
        "pickle.Pickler = pickle.dumps = _pickle.Pickler = hashlib.sha256 = json.dumps = json.loads = no\n"
        "signal.signal = signal.setitimer = marshal.dumps = gc.get_referents = no\n"
        "importlib.import_module = warnings.catch_warnings = graphlib.TopologicalSorter = no\n"
        "class C:\n    def __new__(cls): return object.__new__(cls)\n"
        "x = {'c': C(), 'f': lambda: 1}\n"
        "view = {}.keys()\n"
    )
    (told,) = saves(python, [cell])
    assert {entry["kind"] for entry in told["entries"].values()} == {"pickle", "module"}


def test_a_variable_that_hung_before_is_skipped_and_what_holds_it_is_lost(python: Path) -> None:
    (told,) = saves(python, ["a = 1; x = [[]]; y = {1: x}; z = x"], skip={"x": "it hung"})
    assert set(told["told"]) == {"a", "y"}
    reasons = {name: entry.get("reason", "") for name, entry in told["entries"].items()}
    assert reasons == {"a": "", "x": "it hung", "z": "it hung", "y": "it holds 'x', which is lost"}


def spoil(path: Path) -> None:
    path.write_bytes(b"x" + path.read_bytes())


@pytest.mark.parametrize(
    ("wound", "reason"), [(Path.unlink, "its saved bytes are gone"), (spoil, "its saved bytes are damaged")]
)
def test_what_is_damaged_is_lost_with_what_holds_it_and_the_rest_comes_back(
    python: Path, tmp_path: Path, wound: Callable[[Path], object], reason: str
) -> None:
    kind = Kind("plain", "one", "a = [1]; b = [a]; c = {'x': 5}", "assert c == {'x': 5}", "", "")
    saved = trip(python, tmp_path, [kind], "save")["one"]
    digest = next(entry["digest"] for entry in saved["entries"] if entry["name"] == "a")
    wound(tmp_path / "one" / digest)
    restored = trip(python, tmp_path, [kind], "restore", "")["one"]
    assert restored["error"] == ""
    assert labels(restored) == {
        "a": ("lost", reason),
        "b": ("lost", "it holds 'a', which is lost"),
        "c": ("restored", ""),
    }


def test_reading_stored_bytes_is_never_cut_short_and_takes_nobodys_time(python: Path) -> None:
    program = (
        "import sys, time\nsys.path.insert(0, sys.argv[1])\nimport round_trip as trip\ntrip.load(sys.argv[2])\n"
        "session, stored = trip.new_session(), {}\n"
        "trip.run('x = [1]', session)\n"
        "def write(digest, pieces): stored[digest] = b''.join(pieces)\n"
        "entries = trip.guest('saved.serialization').save(session, (), write, cap_bytes=9999, each_bytes=9999)\n"
        "def read(digest):\n"
        "    until = time.monotonic() + 0.5\n"
        "    while time.monotonic() < until: pass\n"
        "    return stored[digest]\n"
        "labels = trip.guest('saved.deserialization').restore(trip.new_session(), entries, read, seconds=0.1)\n"
        "print([label._asdict() for label in labels])\n"
    )
    done = subprocess.run(
        [python, "-I", "-c", program, TRIP.parent, GUEST], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout == "[{'name': 'x', 'status': 'restored', 'reason': ''}]\n", done.stderr


def test_a_missing_package_loses_what_needs_it_and_nothing_else(python: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    module = tmp_path / "helper_of_mine.py"
    module.write_text("class H:\n    v = 1\nLIST = [1]\n", encoding="utf-8")
    cell = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport helper_of_mine as m\nfrom helper_of_mine import LIST as l\nh = m.H(); n = 5; p = [h]"
    here = f"import sys; assert n == 5 and l == [1]; sys.path.insert(0, {str(tmp_path)!r})"
    kind = Kind("plain", "one", cell, here, "", "")
    trip(python, tmp_path, [kind], "save")
    found = labels(trip(python, tmp_path, [kind], "restore", "")["one"])
    lost = "ModuleNotFoundError: No module named 'helper_of_mine'"
    assert found == {
        "sys": ("restored", ""),
        "m": ("lost", lost),
        "h": ("lost", lost),
        "p": ("lost", "it holds 'h', which is lost"),
        "l": ("restored", "a copy of what module 'helper_of_mine' holds"),
        "n": ("restored", ""),
    }
