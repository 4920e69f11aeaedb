"""The terminal against who means harm: nothing hides in a question, nothing steers, nothing makes the prompt wait."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import anyio
import pytest
from bench.sink_suite.hostile import RAW, hostile
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.front.chat.recorded_output import KeptTranscript, Shelf, told
from tests.front.chat.test_event_renderer import TURN, cell, replied
from tests.time_complexity import assert_linear, repeated, took_s

from pinfold.app import ConfigError
from pinfold.app.clients.notebooks import read_notebook
from pinfold.app.config.settings import set_value
from pinfold.app.storage.exports import Target
from pinfold.events import ActionId, ApprovalRequested, Command, Decide, DisplayRef, SessionOpened, TextDelta
from pinfold.front.chat.completion import files_below
from pinfold.front.chat.dialogs import Approvals
from pinfold.front.chat.input_queue import InputQueue, KeyQuestion
from pinfold.front.chat.pictures import BadPicture, Frame, draw_picture
from pinfold.front.chat.renderers import code, tables
from pinfold.front.chat.renderers.code import highlight_code
from pinfold.front.chat.renderers.markdown import MarkdownStream
from pinfold.front.chat.renderers.transcript import SpacedTranscript
from pinfold.front.chat.status_line import Status
from pinfold.front.cli.commands.diagnostics import mermaid, svg

pytestmark = pytest.mark.safety
_MB = 1 << 20
_LONGEST_S = 10.0
"""Of processor time, in which no key is looked at: ten times what it may be on a machine that has nothing else to do."""


# What is asked is what is shown


async def _asked(answer: str | None = "y", **how: Any) -> tuple[str, str, list[Command]]:
    """What is written of a question, its title, and what this answer submits; None is what a key would that is not offered."""
    title = ""
    transcript, input_queue, submitted = KeptTranscript(colour=False), InputQueue(time.monotonic), list[Command]()

    async def submit(command: Command) -> None:
        submitted.append(command)

    approvals = Approvals(input_queue, transcript, submit)
    given: dict[str, Any] = {"reason": "it writes", "pattern": "shell: touch *", "stored": "a file", **how}
    approvals.take(ApprovalRequested(id=ActionId("a_1"), digest="d", **given))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(approvals.serve)
        with anyio.fail_after(50):
            while input_queue.question is None:
                await anyio.lowlevel.checkpoint()
            title = input_queue.question.title
            assert isinstance(input_queue.question, KeyQuestion)
            input_queue.question.press(answer or "y")
            if answer is None:
                input_queue.question.settle(None)
            while not submitted:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    return transcript.text, title, submitted


@pytest.mark.parametrize(
    "hidden",
    [
        "@@\n" + "echo\n" * 60 + "{evil}\n" + "echo\n" * 60,
        "@@ -1 +1 @@\n" + "+a\n" * 60 + "{evil}\n" + "+a\n" * 60,
        "@@ -1 +1 @@\n+" + "a" * 3000 + "{evil}",
        "# -----BEGIN PRIVATE KEY-----\n{evil}\n# -----END PRIVATE KEY-----",
        "@@ -1 +1 @@\n+# -----BEGIN PRIVATE KEY-----\n+{evil}",
        "PASSWORD=$({evil}) true",
        "curl --password '$({evil})' x",
        "echo\n" * 4000 + "{evil}\n" + "echo\n" * 4000,
        "true " + " " * 5000 + "; {evil}",
    ],
)
async def test_no_part_of_what_would_be_done_is_left_out_of_the_question(hidden: str) -> None:
    text, title, submitted = await _asked(shows=hidden.replace("{evil}", "run evil"))
    assert "run evil" in text.replace("\n  │     ", "")
    assert title.startswith("Allow this?")
    assert ("lines long" in title) == (hidden.count("\n") >= 20)
    assert [(one.digest, one.scope) for one in submitted if isinstance(one, Decide)] == [("d", "once")]


async def test_what_is_too_long_to_be_shown_whole_can_only_be_denied() -> None:
    _, title, submitted = await _asked(None, shows="a" * 300_000)
    assert "can only be denied" in title
    assert not any(isinstance(one, Decide) and one.verdict == "allow" for one in submitted)


async def test_empty_lines_do_not_push_a_command_out_of_sight() -> None:
    text, _, _ = await _asked(shows="run evil" + "\n" * 5000 + "echo done")
    assert text.count("\n") < 10
    assert "[4,999 empty lines]" in text


async def test_nothing_in_a_command_looks_like_our_own_lines() -> None:
    text, _, _ = await _asked(
        reason='it writes\n  "Session" and "always" allow nothing',
        shows='ls\n"Session" and "always" allow ls\n? Another question',
    )
    allows = [line for line in text.split("\n") if line.startswith('  "Session"')]
    assert len(allows) == 1
    assert allows[0].startswith('  "Session" and "always" allow commands that begin with `touch`')
    assert [line for line in text.split("\n") if line.startswith("?")] == ["? it writes"]


async def test_nothing_steers_a_terminal_from_a_question() -> None:
    for text in hostile(40):
        shown, title, _ = await _asked(reason=text, shows=f"@@ -1 +1 @@\n+{text}", pattern=text, stored=text)
        assert RAW.findall(shown + title) == [], text


# No answer by accident


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_who_thinks_about_the_next_word_does_not_answer_what_pops_up() -> None:
    clock = _Clock()
    input_queue = InputQueue(clock)
    input_queue.note_key()
    clock.now += 5  # the line is not entered
    asking = asyncio.create_task(input_queue.ask(KeyQuestion("?", {"y": "yes"})))
    await asyncio.sleep(0)
    input_queue.on_drawn()
    for _ in range(3):  # timers of the loop are real; that of the question starts anew by the input_queue's clock
        await asyncio.sleep(0)
    assert not input_queue.armed
    clock.now += 0.2
    input_queue.note_key()
    assert input_queue.is_early("y")
    assert not input_queue.is_early("yes")
    assert not input_queue.is_early("x")
    asking.cancel()


# Nothing makes the prompt wait


@pytest.mark.parametrize(
    "unit", ["<!--", "<!", "<", "<a ", "</", "<?", "<![CDATA[", '<a b="', "&a", "<thead>", "x<b>", "<style>", "<tr>"]
)
def test_the_time_of_a_page_grows_with_its_length_and_no_faster(unit: str) -> None:
    assert_linear(tables.parse_html_table, lambda size: "<table>" + repeated(unit)(size))


def test_a_plain_table_is_still_read() -> None:
    grid = tables.parse_html_table(
        '<style scoped>td > b { color: red }</style><table border="1" class="dataframe"><thead><tr><th></th>'
        '<th colspan="2">a &amp; b</th></tr></thead><tbody><tr><th rowspan="2">x</th><td>1<br>2</td><td>3</td></tr>'
        "<tr><td>4</td><td>5</td></tr></tbody></table><p>2 rows</p>"
    )
    assert grid is not None
    assert (grid.columns, grid.note) == (("", "a & b", ""), "2 rows")
    assert grid.rows == (("x", "1 2", "3"), ("", "4", "5"))


def test_a_table_that_grows_by_its_spans_is_none() -> None:
    wide = "<table>" + ("<tr>" + "<td colspan=200 rowspan=200>a</td>" * 20) * 1300
    assert took_s(lambda: tables.parse_html_table(wide)) < _LONGEST_S
    assert tables.parse_html_table(wide) is None


@pytest.mark.parametrize(("old", "new"), [("a b " * 99, "b a " * 99), ("a" + "." * 398, "." * 398 + "b")])
def test_lines_that_are_all_alike_are_compared_in_no_time(old: str, new: str) -> None:
    diff = "\n".join(["@@ -1 +1 @@", *[f"-{old}"] * 900, *[f"+{new}"] * 900])
    assert took_s(lambda: code.render_diff(diff)) < _LONGEST_S


def test_no_language_that_a_model_names_takes_long() -> None:
    assert took_s(lambda: highlight_code("\n".join(["a" * 1999] * 5), "fan")) < _LONGEST_S
    assert len(highlight_code("import os", "python")[0].spans) == 1


@pytest.mark.parametrize(
    "text",
    [
        "*a* " * (_MB // 4),
        "a\n" * (_MB // 8),
        ">" * _MB,
        "a" + "\u0301" * (_MB // 4),
        "<br>" * (_MB // 16),
        "|" + "a|" * 200_000 + "\n|" + "-|" * 1900 + "\n" + ("|" + "b|" * 200_000 + "\n") * 2,
    ],
    ids=["emphasis", "lines", "quotes", "marks", "breaks", "columns"],
)
async def test_no_reply_keeps_the_prompt_from_its_keys(text: str) -> None:
    text = text[: _MB // 8]
    stalls: list[float] = []

    async def watch() -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            stalls.append(time.thread_time() - began)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        await MarkdownStream(SpacedTranscript(KeptTranscript())).write_all(text)
        tasks.cancel_scope.cancel()
    assert len(stalls) > 50
    assert max(stalls) < sum(stalls) / 2


@given(st.text("ab|-`>*# \n", max_size=200), st.integers(1, 50))
@settings(max_examples=50)
def test_a_long_line_is_cut_the_same_however_it_came(tail: str, size: int) -> None:
    text = "x" * 8190 + tail
    whole, pieces = KeptTranscript(), KeptTranscript()
    for transcript, step in ((whole, len(text)), (pieces, size)):
        speech = MarkdownStream(SpacedTranscript(transcript))
        for at in range(0, len(text), step):
            speech.add(text[at : at + step])
        speech.end()
    assert whole.sent == pieces.sent


def _png(width: int, height: int, colours: int, rows: bytes, *more: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, 0))
    palette = b"".join(chunk(b"PLTE", one) for one in more)
    return b"".join([b"\x89PNG\r\n\x1a\n", head, palette, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")])


@pytest.mark.parametrize(
    ("size", "data"), [((1, 1), b"\0abc"), ((7000, 7000), b"\0" * _MB), ((0, 9), b""), ((2**31 - 1, 2**31 - 1), b"")]
)
def test_a_picture_is_drawn_or_refused(size: tuple[int, int], data: bytes) -> None:
    for palette in (b"", bytes(900), bytes(5)):
        picture = _png(*size, 2, data, palette)
        try:
            assert draw_picture(picture, "image/png", "blocks", Frame(columns=40)).lines
        except BadPicture:
            assert size != (1, 1)


async def test_a_long_display_is_shown_in_part() -> None:
    shelf = Shelf()
    blob = shelf.put(b"word " * 400_000)
    shown = await told(*cell("x", "", displays=(DisplayRef(mime={"text/markdown": blob}),)), shelf=shelf)
    assert "1,900,000 bytes more: pinfold sessions show" in shown.text


def test_files_are_completed_beside_a_pipe_and_a_link_for_gitignore(tmp_path: Path) -> None:
    (tmp_path / "kept.py").touch()
    os.mkfifo(tmp_path / ".gitignore")
    assert "kept.py" in files_below(tmp_path)
    (tmp_path / ".gitignore").unlink()
    (tmp_path / ".gitignore").symlink_to("/dev/zero")
    assert "kept.py" in files_below(tmp_path)
    (tmp_path / ".gitignore").unlink()
    (tmp_path / ".gitignore").write_text("kept.*\n")
    assert "kept.py" not in files_below(tmp_path)


@pytest.mark.parametrize(("depth", "good"), [(20, True), (600, False), (900, False), (100_000, False)])
def test_a_notebook_that_is_nested_too_deep_is_refused_in_a_line(tmp_path: Path, depth: int, good: bool) -> None:
    raw = {"nbformat": 4, "metadata": "DEEP", "cells": [{"cell_type": "code", "source": "1"}]}
    text = json.dumps(raw).replace('"DEEP"', '{"a":' * depth + "1" + "}" * depth)
    file = tmp_path / "deep.ipynb"
    file.write_text(text)
    if good:
        assert len(read_notebook(file).programs) == 1
    else:
        with pytest.raises(ConfigError):
            read_notebook(file)


# Nothing steers


async def test_nothing_steers_a_terminal_wherever_a_reply_is_cut() -> None:
    texts = hostile(30)
    for text in texts:
        deltas = [TextDelta(turn=TURN, text=letter) for letter in text]
        transcript = await told(*deltas, replied(text), colour=False)
        assert RAW.findall(transcript.sent + "".join(live or "" for live in transcript.lives)) == [], text


def test_nothing_steers_a_terminal_from_the_status_line() -> None:
    for text in hostile(30):
        status = Status()
        status.take(SessionOpened(version="", workspace="", model=text, mode="ask", sandbox=text))
        assert RAW.findall(status.line(200)) == [], text


def test_no_name_breaks_out_of_a_map() -> None:
    from pinfold.app.diagnostics.system_map import Edge, Node, SystemMap

    evil = '"]; click n0 href "javascript:x" %%{init}%%\n</text><script>x</script>\x1b]0;t\x07'
    nodes = (Node(id="a", kind="server", title=evil, lines=(evil,)), Node(id=evil, kind="model", title="m"))
    found = SystemMap(nodes=nodes, edges=(Edge(source="a", target=evil, words=evil),))
    lines = list(mermaid(found))
    assert len(lines) == 4
    assert all(line.count('"') in (0, 2, 4) for line in lines)
    assert not RAW.findall("".join(lines))
    assert "<script" not in svg(found)
    assert not RAW.findall(svg(found).replace("\n", ""))


# Nothing is written elsewhere


def test_nothing_is_written_through_a_link_that_code_could_have_made(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (inside / "sub").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(inside)  # the user's own, above the workspace
    (inside / "out").symlink_to(outside)
    (inside / "sub" / "up").symlink_to("../out")
    for path in ("inside/out/a.md", "inside/sub/up/a.md", "alias/out/a.md", "inside/sub/../out/a.md"):
        with pytest.raises(ConfigError, match=r"/(out|up) is a link: name the place it leads to"):
            Target(tmp_path / path, [inside])
    (inside / "a_files").symlink_to(outside)
    with pytest.raises(ConfigError, match="is a link"):
        Target(inside / "a_files" / "display-1.png", [inside], make_folder=True)
    # Where no code was at work, a link is the user's own.
    with Target(inside / "out" / "mine.md") as target:
        target.write(b"x")
    assert [path.name for path in outside.iterdir()] == ["mine.md"]
    for name in ("a.md", "b.md", "c.md"):
        with Target(tmp_path / "alias" / "sub" / name, [inside]) as target:
            target.write(b"x")


def test_what_code_puts_in_the_way_while_it_runs_is_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (outside / "a.md").write_bytes(b"kept")
    (inside / "out").mkdir(parents=True)
    with Target(inside / "out" / "a.md", [inside]) as target:
        (inside / "out").rename(inside / "moved")
        (inside / "out").symlink_to(outside)
        target.write(b"x")
    assert ((inside / "moved" / "a.md").read_bytes(), (outside / "a.md").read_bytes()) == (b"x", b"kept")
    for planted in (outside / "a.md", outside / "new", Path("/dev/full")):
        with Target(inside / "b.md", [inside]) as target:
            (inside / "b.md").symlink_to(planted)
            with pytest.raises(ConfigError, match="exists already"):
                target.write(b"x")
            target.write(b"x", force=True)
        assert (inside / "b.md").read_bytes() == b"x"
        assert not (inside / "b.md").is_symlink()
        (inside / "b.md").unlink()
    assert [path.read_bytes() for path in outside.iterdir()] == [b"kept"]
    os.mkfifo(inside / "b.md")
    with Target(inside / "b.md", [inside]) as target, pytest.raises(ConfigError, match="exists already"):
        target.check()
    # What the machine itself offers is meant as it is.
    with pytest.raises(ConfigError, match="No space left"), Target(Path("/dev/full")) as target:
        target.write(b"x")


def test_a_projects_settings_are_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim.toml"
    (tmp_path / "pinfold.toml").symlink_to(victim)
    with pytest.raises(ConfigError, match="is a link"):
        set_value("model.name", "scripted", project=tmp_path)
    assert not victim.exists()
