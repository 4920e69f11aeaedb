"""The reader of one stream: bounded, decoded across cuts, never waiting."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from pinfold.sandbox import Stream
from pinfold.sandbox.session.output import Output, OutputListener

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
    output.begin(OutputListener(lambda stream, text: heard.append((stream, text))))
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

    listener = OutputListener(listen)
    output.begin(listener)
    for part in (b"a", b"b"):
        os.write(writer, part)
        output.drain()
    assert calls == ["a"]
    assert isinstance(listener.failure, ValueError)
    assert output.take() == ("ab", 0)


@pytest.mark.parametrize("part", ["x" * 99 + "\n", "é" * 50], ids=["ascii", "another alphabet"])
def test_long_text_is_all_that_came(part: str) -> None:
    read_fd, write_fd = os.pipe()
    output = Output("stdout", read_fd, 8_000_000)
    try:
        for _ in range(2):
            for _ in range(100):
                os.write(write_fd, (part * 300).encode())
                output.drain()
            assert output.take() == (part * 30_000, 0)
    finally:
        output.close()
        os.close(write_fd)
