"""Sessions as files: what is in each form, on a session that was real, and on any events at all."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.app.exports.golden import units
from tests.time_complexity import assert_linear, repeated

from pinfold.app import ConfigError
from pinfold.app.session.observations import observation
from pinfold.app.storage.exports import (
    EXPORT_FORMS,
    build_transcript,
    display_file,
    display_form,
    form_for,
    render_session,
)
from pinfold.app.storage.exports.md import (
    escape_markdown,
    fence_code,
    frame_html,
    inline_html,
    keep_line_breaks,
    render_markdown,
    sanitize_markdown,
)
from pinfold.app.storage.exports.programs import split_error, to_py
from pinfold.app.storage.exports.transcript import Cell, Transcript, size_of
from pinfold.app.storage.exports.transcript_text import PrintedOutput, split_observation
from pinfold.events import (
    ActionDenied,
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    BlobId,
    Call,
    CallTool,
    DisplayRef,
    Entry,
    Event,
    Image,
    ModelReplied,
    Noticed,
    RunCell,
    SessionChanged,
    SessionId,
    SessionOpened,
    SessionRewound,
    TurnEnded,
    TurnFailed,
    TurnId,
    UserSpoke,
)
from pinfold.log import BlobMissing, blob_id
from pinfold.sandbox import Display, Outcome

pytestmark = pytest.mark.unit
SECRET = "sk-proj-Zk3vJ8qLw2Nf6Rt9Xb4Hm7Yc1Pd5Gs0Aa"


def log_of(*events: Event) -> list[Entry]:
    return [
        Entry(seq=number, session=SessionId("s_1"), at="2026-11-16T10:00:00.000Z", event=event)
        for number, event in enumerate(events, 1)
    ]


def ran(code: str, *, number: int = 1, **finished: Any) -> tuple[Event, ...]:
    id_ = ActionId(f"a_{number}")
    end: dict[str, Any] = {"outcome": "ok", "observation": "(no output)\n", **finished}
    return (
        ActionProposed(id=id_, action=RunCell(code=code), turn=TurnId("t_1")),
        ActionStarted(id=id_, effect="once", cell=number),
        ActionFinished(id=id_, **end),
    )


def nothing(blob: BlobId) -> bytes:
    raise BlobMissing(f"no {blob}")


def text_of(form: Any, events: list[Entry], blob: Any = nothing) -> str:
    return render_session(form, events, blob).data.decode()


def valid(notebook: str) -> Any:
    """As the package that defines the format reads it."""
    jupyter: Any = nbformat
    book = jupyter.reads(notebook, as_version=4)
    jupyter.validate(book)
    return book


def test_a_real_session_as_a_notebook_has_its_cells_with_their_outputs_in_order() -> None:
    entries, blobs = units()
    book = valid(text_of("ipynb", entries, blobs.get))
    cells: list[Any] = [cell for cell in book.cells if cell.cell_type == "code"]
    kinds = [[output.output_type for output in cell.outputs] for cell in cells]
    assert kinds == [
        [],  # what stands in for `answer`
        ["stream", "stream", "execute_result"],
        ["stream", "display_data", "execute_result"],
        ["stream", "error"],
        ["execute_result"],
        ["stream"],
        [],
        ["stream"],
    ]
    assert [cell.execution_count for cell in cells] == [None, 1, 2, 3, 4, 5, 6, 8]
    assert not any("total = 0" in cell.source for cell in cells)  # it was undone
    table, figure, failed = cells[1].outputs[2].data, cells[2].outputs[1].data, cells[3].outputs[1]
    assert "<td>north</td>" in table["text/html"]
    assert figure["image/png"].startswith("iVBORw0KGgo")
    assert (failed.ename, failed.evalue) == ("ZeroDivisionError", "float division by zero")
    assert cells[3].metadata.tags == ["raises-exception"]
    assert cells[4].source.startswith("# Needs Pinfold")
    assert "need Pinfold" in book.cells[0].source
    assert book.metadata.kernelspec.name == "python3"


def test_a_real_session_as_a_page_shows_what_was_said_run_and_drawn() -> None:
    entries, blobs = units()
    page = text_of("html", entries, blobs.get)
    for part in ("Units by region", "How many units were sold?", "<td>north</td>", "data:image/png;base64,iVBOR"):
        assert part in page
    assert "<strong>7</strong> units were sold." in page
    assert 'class="cell undone"' in page
    assert "sha256-" in page  # with nothing framed in it, no other style counts
    for outside in ("<script", "http:", "https:", 'src="/', "@import", "url("):
        assert outside not in page


def test_a_real_session_as_markdown_has_its_pictures_beside_or_inside() -> None:
    entries, blobs = units()
    beside = render_session("md", entries, blobs.get, folder="units_files")
    assert "![display 2](<units_files/display-2.png>)" in beside.data.decode()
    assert [*beside.files] == ["units_files/display-2.png"]
    assert size_of(beside.files["units_files/display-2.png"]) is not None
    inside = render_session("md", entries, blobs.get)
    assert "](data:image/png;base64,iVBOR" in inside.data.decode()
    assert not inside.files


def test_a_session_as_a_program_prints_what_it_printed() -> None:
    events = log_of(
        *ran("from __future__ import annotations\nx = [1]\nprint('x', x)", number=1),
        *ran("import asyncio\nawait asyncio.sleep(0)\ny = x + [2]\nprint(y)", number=2),
        *ran(
            "print('before')\ny / 0\nprint('never')",
            number=3,
            outcome="error",
            error='Traceback (most recent call last):\n  File "<cell 3>", line 2, in <module>\nTypeError: no\n',
        ),
        *ran("%time y", number=4),
        *ran("answer(f'it is {y}')", number=5),
    )
    program = text_of("py", events)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "exported.py", "exec"), {"__name__": "__main__"})
    assert said.getvalue() == "x [1]\n[1, 2]\nbefore\nit is [1, 2]\n"
    assert "# It stopped here: TypeError: no" in program
    assert "#     %time y" in program


def test_no_secret_is_in_any_export() -> None:
    html = f"<b>{SECRET}</b>".encode()
    events = log_of(
        SessionChanged(title=f"about {SECRET}"),
        UserSpoke(turn=TurnId("t_1"), text=f"my key is {SECRET}"),
        ModelReplied(turn=TurnId("t_1"), model="m", text=f"key {SECRET}"),
        *ran(
            f"key = '{SECRET}'\nprint(key)",
            observation=f"{SECRET}\n[stderr]\n{SECRET}\n{SECRET}\n",
            value=SECRET,
            displays=(DisplayRef(mime={"text/html": blob_id(html)}),),
        ),
        Noticed(text=SECRET),
    )
    for form in EXPORT_FORMS:
        out = text_of(form, events, {blob_id(html): html}.__getitem__)
        assert SECRET not in out
        assert "[redacted]" in out


def test_what_steers_a_terminal_is_in_no_export_and_colours_are_just_gone() -> None:
    events = log_of(
        UserSpoke(turn=TurnId("t_1"), text="\x1b]0;owned\x07 hello"),
        *ran("1", observation="\x1b[31mred\x1b[0m\n 10%\r 90%\r100%\ndone\n"),
    )
    for form in EXPORT_FORMS:
        out = text_of(form, events)
        assert "\x1b" not in out
    assert "red\n100%\ndone\n" in json.loads(text_of("ipynb", events))["cells"][2]["outputs"][0]["text"]


def test_a_note_of_several_lines_stays_so_in_markdown() -> None:
    events = log_of(Noticed(text="Plan\n[ ] 1. load\n[ ] 2. sum"))
    rendered = MarkdownIt().render(text_of("md", events))
    assert rendered.count("<br") == 2
    assert r"Plan  \n\[ \] 1. load  \n" in text_of("ipynb", events).replace("\\\\", "\\")


def test_turns_that_were_taken_back_and_denied_cells_are_not_part_of_the_program() -> None:
    id_ = ActionId("a_9")
    events = log_of(
        ActionProposed(id=id_, action=RunCell(code="boom()")),
        ActionDenied(id=id_, reason="no"),
        ActionFinished(id=id_, outcome="denied", observation="no"),
        *ran("x = 1", number=1),
        SessionRewound(to=0, undone=(1,)),
        *ran("x = 2", number=2),
    )
    assert [cell.code for cell in build_transcript(events, nothing).path] == ["x = 2"]
    assert [cell.standing for cell in build_transcript(events, nothing).cells] == ["not run", "undone", "kept"]


def test_one_display_is_opened_inside_a_page_in_which_nothing_runs(tmp_path: Path) -> None:
    data = b"<script>x()</script><table>"
    shown = log_of(*ran("1", displays=(DisplayRef(mime={"text/html": blob_id(data), "text/plain": blob_id(b"t")}),)))
    there = {blob_id(data): data, blob_id(b"t"): b"t"}.__getitem__
    page = display_file(tmp_path, shown, there, 1, safe=True).read_text()
    assert "<script" not in page
    assert '<iframe sandbox title="HTML"' in page
    assert display_file(tmp_path, shown, there, 1, safe=False).read_bytes() == data
    assert display_form(shown, there, 1, "text/plain").data == b"t"
    for number, mime in ((2, None), (1, "image/png")):
        with pytest.raises(ConfigError):
            display_form(shown, there, number, mime)


_CALLED = {"name": "python", "arguments": {"code": "x = 1"}}


@pytest.mark.parametrize(
    ("written", "in_text"),
    [
        ("```python\nx = 1\n```", True),
        ("```python\nx = 1", True),
        ("~~~py\nx = 1\n~~~", True),
        ('<tool name="python">x = 1</tool>', True),
        (f"<tool_call>{json.dumps(_CALLED)}</tool_call>", True),
        (json.dumps(_CALLED), True),
        (f"```json\n{json.dumps(_CALLED)}\n```", True),
        ("```python\nx = 1\n```", False),
    ],
)
def test_code_written_into_the_text_of_a_reply_is_told_once(written: str, in_text: bool) -> None:
    call = Call(id=ActionId("a_1"), tool="python", args={"code": "x = 1"})
    text = f"See:\n{written}"
    reply = ModelReplied(turn=TurnId("t_1"), model="m", text=text, actions=(call,), in_text=in_text)
    for form in ("md", "ipynb", "py"):
        out = text_of(form, log_of(reply, *ran("x = 1")))
        assert out.count("x = 1") == 1
        assert "See:" in out


def test_other_code_in_a_reply_stays() -> None:
    call = Call(id=ActionId("a_1"), tool="python", args={"code": "x = 1"})
    text = "Like\n```python\ny = 2\n```\nand\n```python\nx = 1\n```"
    reply = ModelReplied(turn=TurnId("t_1"), model="m", text=text, actions=(call,), in_text=True)
    out = text_of("md", log_of(reply, *ran("x = 1")))
    assert (out.count("x = 1"), out.count("y = 2")) == (1, 1)


@given(
    stdout=st.text("ab[]\n 1", max_size=12),
    stderr=st.sampled_from(["", "warned\n", "[x]\n"]),
    value=st.sampled_from([None, "1", "[1]", "a\nb"]),
    error=st.sampled_from([None, "Traceback\nE: x\n"]),
    notices=st.sampled_from([(), ("restored a file",)]),
)
def test_what_a_cell_printed_is_found_again_in_what_the_model_saw(
    stdout: str, stderr: str, value: str | None, error: str | None, notices: tuple[str, ...]
) -> None:
    value = None if error else value
    outcome = Outcome(
        status="error" if error else "ok",
        stdout=stdout,
        stderr=stderr,
        value=value,
        error=error,
        notices=notices if error or value else (),
        displays=(Display(mime={"text/plain": b"a plain one"}), Display(mime={"image/png": b"x"})),
    )
    words = ["a plain one", "[shown to the user: image/png, 1 bytes]"]
    found = split_observation(observation(outcome), value=value, error=error, shown=words)
    # Where something follows it, an end of line more or less is not told apart.
    assert found.stdout.strip("\n") == stdout.strip("\n")
    assert found.stderr.strip("\n") == stderr.strip("\n")
    assert found.notices == outcome.notices


def test_nothing_printed_is_nothing() -> None:
    assert split_observation("(no output)\n", value=None, error=None) == PrintedOutput()


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("Traceback (most recent call last):\n  x\nKeyError: 'a'\n", ("KeyError", "'a'")),
        ("Traceback (most recent call last):\n  x\npkg.Bad: two\nlines", ("pkg.Bad", "two\nlines")),
        ("the interpreter exited with code 3", ("Error", "the interpreter exited with code 3")),
    ],
)
def test_an_error_is_named(error: str, named: tuple[str, str]) -> None:
    assert split_error(error) == named


def test_markdown_from_elsewhere_becomes_html_without_tags_scripts_or_links() -> None:
    out = render_markdown(
        "<script>x</script> <img src=x onerror=y> [a](javascript:z) [docs](https://example.org/a) ![p](https://e.org/p.png)\n\n"
        "```html\n<b>\n```\n\n| a |\n|---|\n| <i> |"
    )
    for bad in ("<script", "<img", "<a ", "href"):
        assert bad not in out
    assert "(https://example.org/a)" in out
    assert "<table>" in out


def test_the_lines_of_an_answer_stay_lines() -> None:
    answer = "North: 12\nSouth: 9\n\n```python\nx = 1\ny = 2\n```\n- a\n- b"
    assert "North: 12<br />\nSouth: 9" in render_markdown(answer)
    kept = keep_line_breaks(answer)
    assert "North: 12  \nSouth: 9\n" in kept
    assert "x = 1\ny = 2\n```" in kept
    assert [line.rstrip() for line in kept.split("\n")] == answer.split("\n")


def test_markdown_that_stays_markdown_loses_its_html_but_not_its_code() -> None:
    out = sanitize_markdown("a <b>bold</b> `<i>` ![p](https://e.org/p.png)\n```html\n<b>\n```\n~~~\nopen")
    assert out == "a &lt;b>bold&lt;/b> `<i>` !\\[p](https://e.org/p.png)\n```html\n<b>\n```\n~~~\nopen\n~~~"
    assert escape_markdown("# *a* <b>") == "\\# \\*a\\* &lt;b>"
    assert fence_code("```\nx\n````").startswith("`````\n")


TAG = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    "text",
    [
        f"``` x`\n\n{TAG}\n",
        f"- a\n  ```\n{TAG}\n",
        f"* a\n   ~~~\n{TAG}\n",
        f"`\n\n{TAG}\n\n`",
        f"# `\n{TAG}\n\n`",
        f"`\n===\n{TAG}\n`",
        f"`\n***\n{TAG}\n`",
        f"\\`{TAG}`",
        f"| a | b |\n|---|---|\n| ` | {TAG} ` |",
        "`\n\n![a](https://e.org/p.png)\n\n`",
        "\n".join(f"{'>' * 25} {line}" for line in ("`", "", TAG, "", "`")),
    ],
)
def test_html_that_only_looks_like_code_is_lost_as_well(text: str) -> None:
    reader = MarkdownIt("commonmark", {"html": True, "maxNesting": 100}).enable("table")
    assert "<img" in reader.render(text)
    assert "<img" not in reader.render(sanitize_markdown(text))
    long = b"1\n" * 60
    shown = DisplayRef(mime={f"x/{TAG}": blob_id(long)})  # such as only a log from elsewhere has
    events = log_of(*ran("1", displays=(shown,)), TurnEnded(turn=TurnId("t_1"), text=text))
    assert "<img" not in reader.render(text_of("md", events, {blob_id(long): long}.__getitem__))


def test_a_plain_table_becomes_part_of_the_page_and_anything_else_is_framed() -> None:
    table = '<div><style scoped>td {color: red}</style><table border="1" class="x"><tr><td rowspan="2" onclick="x()">a &lt; b</table>'
    assert inline_html(table) == '<div><table><tbody><tr><td rowspan="2">a &lt; b</td></tr></tbody></table></div>'
    for other in ("<script>x</script>", "<img src=x>", "<style>td{}</style>", "<svg/>", "<a href=x>x</a>", "<input>"):
        assert inline_html(other) is None
        assert (frame_html(other) or "").startswith('<iframe sandbox title="HTML"')
    assert inline_html("</div></p>text<b>") == "<p></p>text<b></b>"
    assert inline_html("<div>" * 101) is None
    assert 'srcdoc="' in (frame_html('"><script>') or "")
    assert "<script" not in (frame_html('"><script>') or "")
    connects = frame_html("<LINK rel=preconnect href=//x.invalid><iframe src=//x.invalid></iframe><b>shown</b>") or ""
    assert not re.search(r"&lt;/?(link|iframe)", connects, re.IGNORECASE)
    assert "&lt;b&gt;shown" in connects


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.ipynb", "ipynb"),
        ("a.HTML", "html"),
        ("a.jsonl", "jsonl"),
        ("a.json", "json"),
        ("a.pinfold", "bundle"),
        ("a", "bundle"),
    ],
)
def test_the_end_of_a_name_says_what_a_session_is_saved_as(name: str, form: str) -> None:
    assert form_for(Path(name)) == form


@pytest.mark.parametrize("piece", ["[", "![", "*a ", "` ", "<a ", "<!--", "a_b_", "[a](b", "<b>", "&amp;", "[a\n"])
def test_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    assert_linear(
        lambda text: (render_markdown(text), sanitize_markdown(text), inline_html(text)),
        repeated(piece),
        (3_000, 30_000),
    )


NASTY = (
    "",
    "x = 1",
    "```",
    "<script>",
    "# coding: latin-1",
    "a\r\nb\rc",
    "%%bash\nls",
    "await x",
    "x = (",
    "''' \"\"\"",
    "from __future__ import y",
    "\x00\ud800\u202e\x1b[31m",
    'Traceback\n  File "<cell 1>", line 9\nE: x',
)
MIMES = (
    "text/plain",
    "text/html",
    "image/png",
    "image/svg+xml",
    "application/json",
    "a/b",
    "text/markdown",
    "x+json",
    "",
)
BLOBS = {blob_id(text.encode("utf-8", "replace")): text.encode("utf-8", "replace") for text in (*NASTY, "1", "{}")}


def pool() -> list[Event]:
    """Of every kind that is told, with every text that could go wrong, for a few actions."""
    found: list[Event] = []
    turn, kept = TurnId("t_1"), [*BLOBS]
    for place, text in enumerate(NASTY):
        id_, other = ActionId(f"a_{place % 3}"), ActionId(f"a_{(place + 1) % 3}")
        shown = DisplayRef(mime={mime: kept[(place + n) % len(kept)] for n, mime in enumerate(MIMES)})
        found += [
            UserSpoke(turn=turn, text=text, images=(Image(mime="image/png", blob=kept[0]),)),
            ModelReplied(turn=turn, model=text, text=text, in_text=place % 2 == 0),
            ActionProposed(id=id_, action=RunCell(code=text)),
            ActionProposed(id=id_, action=CallTool(tool=text, args=[text]), parent=other if place % 2 else None),
            ActionStarted(id=id_, effect="once", cell=place % 4 or None),
            ActionDenied(id=id_, reason=text),
            ActionFinished(id=id_, outcome="ok", observation=text, value=text, displays=(shown, DisplayRef(mime={}))),
            ActionFinished(id=id_, outcome="error", observation=text, error=text, blobs=(kept[place],)),
            ActionFinished(id=id_, outcome="killed", observation=text, blobs=(BlobId("gone"),)),
            SessionChanged(title=text),
            SessionOpened(version=text, workspace=text, model=text, mode="auto", sandbox=text, lost=(text, text)),
            TurnEnded(turn=turn, text=text),
            TurnFailed(turn=turn, error=text),
            Noticed(text=text),
        ]
    return [*found, SessionRewound(to=0, undone=(1,)), SessionRewound(to=1, redone=(1,))]


@given(st.lists(st.sampled_from(pool()), max_size=20))
def test_any_events_can_be_told_in_every_form(told: list[Event]) -> None:
    def read(blob: BlobId) -> bytes:
        return BLOBS[blob] if blob in BLOBS else nothing(blob)

    out = {form: render_session(form, log_of(*told), read).data for form in EXPORT_FORMS}
    valid(out["ipynb"].decode())
    ast.parse(out["py"])
    assert b"<script" not in out["html"].lower()


@given(st.lists(st.sampled_from(NASTY) | st.text(max_size=10), max_size=5))
def test_a_program_of_any_cells_compiles(codes: list[str]) -> None:
    cells = tuple(Cell(code=code, number=number, standing="kept", outcome="ok") for number, code in enumerate(codes, 1))
    compile(to_py(Transcript(items=cells)), "x.py", "exec")
