"""Variables saved in one process come back in another as they were, or are named with a reason."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.guest.kinds import KINDS, Kind

import pinfold

pytestmark = pytest.mark.integration

GUEST = Path(pinfold.__file__).parent / "guest"
TRIP = Path(__file__).with_name("trip.py")


def trip(python: Path, way: str, folder: Path, kinds: list[Kind]) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [python, "-I", TRIP, GUEST, way, folder],
        input=json.dumps([(kind.name, kind.cell, kind.check) for kind in kinds]),
        capture_output=True,
        text=True,
        timeout=95,
        env={"HOME": str(folder), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    assert len(rows) == len(kinds), done.stderr[-3000:]
    return {row["name"]: row for row in rows}


@pytest.fixture(scope="session")
def trips(data_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("trips")
    saved = trip(data_python, "save", folder, list(KINDS))
    restored = trip(data_python, "restore", folder, list(KINDS))
    return {name: {"saved": saved[name], "restored": restored[name]} for name in saved}


def labels(row: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {label["name"]: (label["status"], label["reason"]) for label in row["restored"]["labels"]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "_"))
def test_a_kind_of_value_comes_back_or_is_named_with_a_reason(
    kind: Kind, trips: dict[str, dict[str, Any]]
) -> None:
    row = trips[kind.name]
    assert row["saved"]["error"] == ""
    status, reason = labels(row)["x"]
    if kind.lost:
        assert status == "lost"
        assert kind.lost in reason
    else:
        assert [(name, *label) for name, label in labels(row).items() if label[0] != "restored"] == []
        assert row["restored"]["error"] == ""
        assert kind.note in reason
        assert bool(kind.note) == bool(reason), reason


def test_at_least_nine_of_ten_kinds_come_back(trips: dict[str, dict[str, Any]]) -> None:
    came = [name for name, row in trips.items() if labels(row)["x"][0] == "restored"]
    assert len(trips) >= 60
    assert len(came) >= 0.9 * len(trips)
