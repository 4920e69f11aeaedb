"""The reader of one stream: bounded, decoded across cuts, never waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator

import pytest

from pinfold.sandbox import Stream
from pinfold.sandbox._kept import Kept
from pinfold.sandbox._output import Output

pytestmark = pytest.mark.unit

Pipe = tuple[Output, int]


@pytest.fixture
def pipe() -> Generator[Pipe]:
    read_fd, write_fd = os.pipe()
    yield Output("stdout", read_fd, 10), write_fd
    os.close(read_fd)
    os.close(write_fd)


def test_a_character_cut_in_two_is_one_character(pipe: Pipe) -> None:
    output, writer = pipe
    for part in (b"a\xc3", b"\xa9b"):
        os.write(writer, part)
        assert output.read()
    assert output.take() == ("aéb", 0)


def test_the_limit_counts_bytes_and_cuts_between_characters(pipe: Pipe) -> None:
    output, writer = pipe
    os.write(writer, b"123456789" + "éé".encode())
    output.drain()
    assert output.take() == ("123456789", 4)
    os.write(writer, b"next")
    output.drain()
    assert output.take() == ("next", 0)


def test_reading_an_empty_pipe_does_not_wait(pipe: Pipe) -> None:
    output, _ = pipe
    assert output.read()
    output.drain()
    assert output.take() == ("", 0)


def test_what_came_before_a_cell_is_told_to_its_listener(pipe: Pipe) -> None:
    output, writer = pipe
    heard: list[tuple[Stream, str]] = []
    os.write(writer, b"old ")
    output.drain()
    output.begin(lambda stream, text: heard.append((stream, text)))
    os.write(writer, b"new")
    output.drain()
    assert heard == [("stdout", "old "), ("stdout", "new")]
    assert output.take() == ("old new", 0)


def test_a_listener_that_raises_is_not_called_again(pipe: Pipe) -> None:
    output, writer = pipe
    calls: list[str] = []

    def listen(_stream: Stream, text: str) -> None:
        calls.append(text)
        raise ValueError(text)

    output.begin(listen)
    for part in (b"a", b"b"):
        os.write(writer, part)
        output.drain()
    assert calls == ["a"]
    assert isinstance(output.failure, ValueError)
    assert output.take() == ("ab", 0)


LONG_PARTS = {
    "just long": ["x" * 99 + "\n"] * 30_000,
    "one piece": ["y" * 3_000_000],
    "another alphabet late": ["a" * 2_000_000, "é" * 10, "b" * 2_000_000],
    "another alphabet first": ["é", *["c" * 1000] * 3000],
    "longer than the room": ["d" * 1_000_000] * 9,
}


@pytest.mark.parametrize("parts", LONG_PARTS.values(), ids=LONG_PARTS.keys())
def test_long_text_is_what_came_and_is_a_text_like_any_other(parts: list[str]) -> None:
    kept, whole = Kept(8_000_000), "".join(parts)
    for _ in range(2):
        for part in parts:
            kept.add(part)
        text = kept.taken()
        assert text == whole
        assert hash(text) == hash(whole)
        assert {whole: 1}[text] == 1
        assert text.encode() == whole.encode()
        assert sys.getsizeof(text) == sys.getsizeof(whole)
    assert kept.taken() == ""


def test_long_text_that_was_looked_at_goes_on() -> None:
    kept = Kept(8_000_000)
    kept.add("a" * 2_000_000)
    seen = list(kept.parts())
    kept.add("b" * 2_000_000)
    assert seen == ["a" * 2_000_000]
    assert kept.taken() == "a" * 2_000_000 + "b" * 2_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_long_text_takes_its_memory_once_and_gives_it_back() -> None:
    code = (
        "from pinfold.sandbox._kept import Kept\n"
        "for _ in range(20):\n"
        "    kept = Kept(1 << 26)\n"
        "    for _ in range(60): kept.add('x' * (1 << 20))\n"
        "    assert len(kept.taken()) == 60 << 20\n"
        "    kept.add('y' * (8 << 20)); del kept\n"
        # Not what `resource` says, which counts whoever started the process.
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 120 << 10
