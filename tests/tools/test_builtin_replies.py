"""What comes out of a session is its word: whatever it says, the host reads it, bounds it, and goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.tools import BadCall, Registry, ToolFailed
from pinfold.tools.builtin.files import FileTools, file_tools, measure, preview
from pinfold.tools.builtin.programs import REPLY, source

pytestmark = [pytest.mark.unit, pytest.mark.safety]
CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("list_files", {}),
    ("read_file", {"path": "a"}),
    ("write_file", {"path": "a", "content": "x"}),
    ("edit_file", {"path": "a", "old": "x", "new": "y"}),
    ("apply_patch", {"patch": "x"}),
    ("glob", {"pattern": "*"}),
    ("grep", {"pattern": "x"}),
    ("data_view", {"path": "a", "view": "stats"}),
)
HOSTILE = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b'{"text": 1}',
    b'{"text": null, "entries": 3, "files": -1}',
    b'{"text": NaN}',
    b"{" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"entries": [1, {"name": 2}]}',
    b'{"entries": [{"name": "a", "type": "door", "size": 1}], "more": 0}',
    b'{"entries": [], "more": true}',
    b'{"files": 1e400, "bytes": 0}',
    b'{"same": "deadbeef"}',
    b'{"error": 5}',
    b"\xff\xfe{}",
    b'{"text": "' + b"x" * (REPLY + 1) + b'"}',
]


@dataclass
class Told:
    """How a program ended, as a hostile session would tell it."""

    stdout: bytes = b""
    status: Literal["ok", "error", "timeout"] = "ok"
    code: int | None = 0
    stderr: bytes = b""
    dropped_bytes: int = 0
    notices: tuple[str, ...] = ()


class Says:
    """A session that answers everything with the same."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.asked: list[Sequence[str]] = []

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",  # noqa: ARG002
        env: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> Told:
        self.asked.append(argv)
        assert json.loads(stdin)
        assert timeout_s > 0
        return self.told


@pytest.mark.parametrize("stdout", HOSTILE, ids=range(len(HOSTILE)))
async def test_an_answer_that_makes_no_sense_is_the_sessions_fault_and_ends_nothing(stdout: bytes) -> None:
    session = Says(Told(stdout))
    registry = Registry(file_tools(session))
    for name, args in CALLS:
        with pytest.raises(ToolFailed, match="answer cannot be read") as failed:
            await registry.call(name, args)
        assert not failed.value.at_fault
    with pytest.raises(BadCall):
        await FileTools(session).list_directory(".")
    with pytest.raises(BadCall):
        await measure(session, ["a"])
    with pytest.raises(BadCall):
        await preview(session, "write_file", {"path": "a", "content": "x"})
    assert len(session.asked) == len(CALLS) + 3


async def is_told_or_refused(registry: Registry, name: str, args: Mapping[str, object]) -> bool:
    try:
        return len((await registry.call(name, args)).text) < 2 << 20
    except ToolFailed as failed:
        return not failed.at_fault


@given(st.binary(max_size=300))
async def test_no_bytes_at_all_bring_the_host_down(stdout: bytes) -> None:
    registry = Registry(file_tools(Says(Told(stdout))))
    for name, args in CALLS:
        assert await is_told_or_refused(registry, name, args)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (Told(status="timeout", code=None), "took longer than"),
        (Told(status="error", code=1, stderr=b"Traceback\nMemoryError: no\n"), "could not do this: MemoryError: no"),
        (Told(status="error", code=-9), "killed, most likely because it ran out of memory"),
        (Told(status="error", code=127), "ended without a message"),
        (Told(b'{"text": "x"}', dropped_bytes=1), "answer cannot be read"),
        (Told(json.dumps({"error": "e" * 100_000}).encode()), "characters left out"),
    ],
)
async def test_a_program_that_does_not_answer_is_told_in_words(told: Told, says: str) -> None:
    registry = Registry(file_tools(Says(told)))
    for name, args in CALLS:
        with pytest.raises(ToolFailed, match=says) as failed:
            await registry.call(name, args)
        assert len(str(failed.value)) < 6000


async def test_a_session_cannot_make_the_host_keep_what_it_never_worked_out() -> None:
    """`same` is believed only of what the host has kept for that very question."""
    session = Says(Told(b'{"text": "first", "digest": "d", "size": 3}'))
    registry = Registry(file_tools(session))
    assert (await registry.call("data_view", {"path": "a.csv", "view": "stats"})).text == "first"
    session.told = Told(b'{"same": "d"}')
    assert (await registry.call("data_view", {"path": "a.csv", "view": "stats"})).text == "first"
    with pytest.raises(ToolFailed):
        await registry.call("data_view", {"path": "a.csv", "view": "columns"})
    with pytest.raises(ToolFailed):
        await registry.call("data_view", {"path": "b.csv", "view": "stats"})


def test_every_program_is_short_enough_for_a_command_line() -> None:
    for program in ("file_reader", "file_writer", "patcher", "file_finder", "text_search", "tables"):
        assert len(source(program).encode()) < 120_000  # the kernel takes 128 KiB
