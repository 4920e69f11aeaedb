"""A disk that is full at some point of a session. The long version is in bench/faults.py."""

from __future__ import annotations

import pytest
from bench.crash_suite.full_disk import LAWS, NotPermitted, fill_at_every

pytestmark = pytest.mark.safety


def test_a_full_disk_is_said_clearly_and_the_session_goes_on_once_there_is_room() -> None:
    try:
        found = fill_at_every(50)
    except NotPermitted as reason:
        pytest.skip(str(reason))
    assert found.holds(LAWS), found.report(LAWS)
    assert found.seen["exit 75"], "the disk was never full"
    assert found.seen["exit 0"], "the disk was always full"
