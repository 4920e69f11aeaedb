"""What the OpenAI wire keeps for its clients is bounded, whatever the order in which it is written."""

from pathlib import Path

import pytest

from pinfold.app.clients.wire_records import WireRecords

pytestmark = pytest.mark.unit


def test_every_kind_is_bounded_even_if_two_are_written_by_turns_and_files_stay(tmp_path: Path) -> None:
    records = WireRecords(tmp_path / "clients.sqlite", kept=10)
    for number in range(1000):
        records.put("file", f"f{number}", number)
        records.put("call", f"c{number}", number)
    assert len(records.all("file", int)) == 1000
    assert records.all("call", int) == list(range(990, 1000))
