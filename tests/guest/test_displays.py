"""What a cell shows reaches the host in its richest forms, once, in order, and never breaks the cell."""

from __future__ import annotations

import json

import pytest

from pinfold.sandbox import Outcome, Session

pytestmark = pytest.mark.integration

PNG = b"\x89PNG\r\n\x1a\n"


def shown(outcome: Outcome, mime: str) -> list[bytes]:
    return [display.mime[mime] for display in outcome.displays if mime in display.mime]


@pytest.mark.parametrize(
    ("method", "returned", "mime", "data"),
    [
        ("_repr_html_", "'<p>é</p>'", "text/html", "<p>é</p>".encode()),
        ("_repr_markdown_", "'# x'", "text/markdown", b"# x"),
        ("_repr_svg_", "'<svg/>'", "image/svg+xml", b"<svg/>"),
        ("_repr_png_", "b'\\x89PNG'", "image/png", b"\x89PNG"),
        ("_repr_png_", "'iVBORw==\\n'", "image/png", b"\x89PNG"),
        ("_repr_json_", "{'a': [1, None]}", "application/json", b'{"a": [1, null]}'),
        ("_repr_latex_", "('$x$', {'width': 3})", "text/latex", b"$x$"),
        ("_repr_mimebundle_", "{'text/x-a': 'a'}", "text/x-a", b"a"),
    ],
)
async def test_an_object_shows_itself_in_its_own_way(
    session: Session, method: str, returned: str, mime: str, data: bytes
) -> None:
    outcome = await session.run(
        f"class Thing:\n    def __repr__(self): return 'thing'\n    def {method}(self, **_): return {returned}\nThing()"
    )
    assert outcome.value == "thing"
    assert [dict(display.mime) for display in outcome.displays] == [{"text/plain": b"thing", mime: data}]


async def test_plain_values_have_no_display_and_display_shows_them_as_text(session: Session) -> None:
    assert (await session.run("[1, 'é']")).displays == ()
    assert (await session.run("object")).displays == ()
    outcome = await session.run("display(1, 'é')")
    assert shown(outcome, "text/plain") == [b"1", "'é'".encode()]
    assert outcome.value is None


async def test_a_form_that_fails_is_said_and_the_others_come(session: Session) -> None:
    outcome = await session.run(
        "class Odd:\n"
        "    def _repr_html_(self): raise ValueError('no page')\n"
        "    def _repr_png_(self): return 'not base64!'\n"
        "    def _repr_json_(self): return {1}\n"
        "    def _repr_latex_(self): return 5\n"
        "    def _repr_mimebundle_(self, **_): return {'Not A Type': 'x', 7: 'x', 'text/x-fine': 'fine'}\n"
        "    def __repr__(self): raise ValueError('no text')\n"
        "display(Odd())\n'next'"
    )
    assert (outcome.status, outcome.value) == ("ok", "'next'")
    assert [sorted(display.mime) for display in outcome.displays] == [["application/json", "text/plain", "text/x-fine"]]
    assert shown(outcome, "text/plain") == [b"<Odd: its text could not be made>"]
    for what in ("_repr_html_ of Odd failed: ValueError: no page", "image/png of Odd", "text/latex of Odd"):
        assert what in outcome.stderr


async def test_an_object_that_answers_every_name_is_not_rich_for_it(session: Session) -> None:
    outcome = await session.run("class Any:\n    def __getattr__(self, name): return lambda *a, **k: name\nAny()")
    assert outcome.status == "ok"
    assert (outcome.displays, outcome.stderr) == ((), "")


async def test_displays_beyond_the_limit_come_as_text_and_it_is_said(session: Session) -> None:
    outcome = await session.run("for n in range(70): display(n)")
    assert len(outcome.displays) == 64
    assert outcome.stdout.split() == ["64", "65", "66", "67", "68", "69"]
    assert outcome.stderr.count("the rest comes as text") == 1
    large = "class Large:\n    def _repr_html_(self): return 'x' * (20 << 20)\n    def __repr__(self): return 'large'"
    outcome = await session.run(f"{large}\ndisplay(Large())\nLarge()")
    assert [len(page) for page in shown(outcome, "text/html")] == [20 << 20]
    assert (outcome.value, outcome.stdout) == ("large", "")
    assert (await session.run("1")).value == "1"


async def test_a_display_is_updated_in_place_and_cleared(session: Session) -> None:
    outcome = await session.run("one = display('first', display_id=True)\ndisplay('other')\none.update('second')")
    assert shown(outcome, "text/plain") == [b"'second'", b"'other'"]
    outcome = await session.run("one.update('third')")
    assert shown(outcome, "text/plain") == [b"'third'"]


async def test_displays_of_threads_all_come_and_of_children_come_as_text(session: Session) -> None:
    outcome = await session.run(
        "import os, threading\n"
        "def show():\n    for n in range(10): display(n)\n"
        "threads = [threading.Thread(target=show) for _ in range(4)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "if os.fork() == 0:\n    display('child')\n    os._exit(0)\n"
        "_ = os.wait()"
    )
    assert sorted(shown(outcome, "text/plain")) == sorted(str(n).encode() for n in range(10) for _ in range(4))
    assert (outcome.status, outcome.stdout) == ("ok", "'child'\n")


async def test_a_thread_of_an_earlier_cell_shows_in_the_cell_that_runs(session: Session) -> None:
    await session.run(
        "import threading\ngo, done = threading.Event(), threading.Event()\n"
        "def late():\n    go.wait(); display('late'); print('printed'); done.set()\n"
        "threading.Thread(target=late, daemon=True).start()"
    )
    outcome = await session.run("go.set(); done.wait(10)")
    assert (shown(outcome, "text/plain"), outcome.stdout) == ([b"'late'"], "printed\n")


async def test_a_semicolon_hides_the_value(session: Session) -> None:
    outcome = await session.run("40 + 2;")
    assert (outcome.status, outcome.value) == ("ok", None)
    assert (await session.run("_")).value == "42"


async def test_a_program_that_spoils_our_functions_is_still_answered(session: Session) -> None:
    await session.run(
        "import sys\nguest = sys.modules['_pinfold_guest.cells.displays']\n"
        "guest._sendable = lambda forms: {'bad type': 'not bytes'}\ndel display.__globals__['_publish']"
    )
    assert (await session.run("display(1)")).status in ("error", "killed")
    assert (await session.run("1")).status in ("ok", "killed")


async def test_pandas_and_pictures(data: Session) -> None:
    outcome = await data.run("import pandas as pd\nframe = pd.DataFrame({'a': [1, 2]})\nframe")
    assert outcome.value == "   a\n0  1\n1  2"
    assert b"<table" in shown(outcome, "text/html")[0]
    outcome = await data.run("from PIL import Image\nImage.new('RGB', (4, 4))")
    assert shown(outcome, "image/png")[0].startswith(PNG)
    assert "image/jpeg" not in outcome.displays[0].mime


async def test_figures_are_shown_once_and_closed(data: Session) -> None:
    await data.run("import matplotlib.pyplot as plt")  # which may have to say that it takes its time
    outcome = await data.run("plt.plot([1, 2])\nplt.show()\nplt.plot([3])\nplt.figure()\nNone")
    assert (outcome.status, outcome.stderr) == ("ok", "")
    assert [picture[:8] for picture in shown(outcome, "image/png")] == [PNG, PNG]
    assert (await data.run("plt.get_fignums(), plt.get_backend()")).value == "([], 'agg')"
    outcome = await data.run("figure, axes = plt.subplots()\naxes.plot([1])\nfigure")
    assert len(outcome.displays) == 1
    outcome = await data.run("figure, axes = plt.subplots()\naxes.plot([1])\ndisplay(figure)")
    assert len(outcome.displays) == 1
    outcome = await data.run("import pandas as pd\npd.Series([1, 2]).plot()")
    assert (outcome.value, len(outcome.displays)) == ("<Axes: >", 1)
    outcome = await data.run("plt.plot([1])\n1 / 0")
    assert (outcome.status, len(outcome.displays)) == ("error", 1)
    outcome = await data.run("figure, axes = plt.subplots(figsize=(400, 400))\naxes.plot([1])\nNone")
    assert outcome.status == "ok"
    assert len(shown(outcome, "image/png")[0]) < 2_000_000


async def test_a_figure_that_cannot_be_drawn_does_not_break_the_cell(data: Session) -> None:
    outcome = await data.run("import matplotlib.pyplot as plt\nplt.title('$\\\\nosuch$')\n5")
    assert (outcome.status, outcome.value) == ("ok", "5")
    assert "drawing of Figure failed" in outcome.stderr


async def test_a_plot_of_plotly_comes_as_data_and_as_a_page(data: Session) -> None:
    if (await data.run("import plotly.graph_objects as go")).status != "ok":
        pytest.skip("plotly is not in the data environment")
    for code in ("figure = go.Figure(go.Bar(y=[1]))\nfigure", "figure.show()", "display(figure)"):
        outcome = await data.run(code)
        assert [sorted(display.mime) for display in outcome.displays] == [
            ["application/vnd.plotly.v1+json", "text/html", "text/plain"]
        ]


async def test_ipythons_display_functions_are_ours(data: Session) -> None:
    outcome = await data.run(
        "from IPython.display import HTML, JSON, SVG, Image, Markdown, clear_output, display, update_display\n"
        "display(HTML('<b>'), JSON({'a': 1}), Markdown('*'))\n"
        "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\n"
        "from PIL import Image as Picture\nimport io\nfile = io.BytesIO()\nPicture.new('1', (1, 1)).save(file, 'png')\n"
        "display(Image(file.getvalue()))"
    )
    assert outcome.status == "ok", outcome.error
    assert shown(outcome, "text/html") == [b"<b>"]
    assert json.loads(shown(outcome, "application/json")[0]) == {"a": 1}
    assert shown(outcome, "image/png")[0].startswith(PNG)
    assert [len(shown(outcome, mime)) for mime in ("text/markdown", "image/svg+xml")] == [1, 1]
    outcome = await data.run("for n in range(5):\n    clear_output(wait=True)\n    display(n)")
    assert shown(outcome, "text/plain") == [b"4"]
