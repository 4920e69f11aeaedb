"""Events and deltas as a person sees them: what is written follows from the events alone, deltas only come before."""

from __future__ import annotations

import time
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.front.chat.recorded_output import KeptTranscript, Shelf, entry, tell, told

from pinfold.events import (
    ActionDenied,
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    ApprovalDecided,
    ApprovalRequested,
    CallTool,
    Changed,
    ContextCompacted,
    Delta,
    DisplayRef,
    Event,
    FileChange,
    ModelCalled,
    ModelFailed,
    ModelReplied,
    Noticed,
    OutputDelta,
    RunCell,
    SessionChanged,
    SessionOpened,
    SessionRewound,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    UserSpoke,
    plain_json,
)
from pinfold.front.chat.renderers.event_renderer import LIVE_S, EventRenderer

pytestmark = pytest.mark.unit
TURN = TurnId("t_1")
A = ActionId("a_1")
B = ActionId("a_2")


def replied(text: str, reasoning: str = "", model: str = "m") -> ModelReplied:
    return ModelReplied(turn=TURN, model=model, text=text, reasoning=reasoning)


def cell(
    code: str = "x = 1",
    observation: str = "(no output)\n",
    number: int = 3,
    *,
    between: tuple[Event | Delta, ...] = (),
    **how: object,
) -> tuple[Event | Delta, ...]:
    finished = {"outcome": "ok", "duration_s": 0.02, **how}
    return (
        ActionProposed(id=A, action=RunCell(code=code)),
        ActionStarted(id=A, effect="once", cell=number),
        *between,
        ActionFinished(id=A, observation=observation, **finished),  # pyright: ignore[reportArgumentType]
    )


def tool(name: str, args: object, observation: str, **how: object) -> tuple[Event, ...]:
    finished = {"outcome": "ok", "duration_s": 0.1, **how}
    return (
        ActionProposed(id=A, action=CallTool(tool=name, args=args)),
        ActionStarted(id=A, effect="once"),
        ActionFinished(id=A, observation=observation, **finished),  # pyright: ignore[reportArgumentType]
    )


@given(text=st.text(max_size=80), at=st.integers(0, 80), reasoning=st.text(max_size=20))
@settings(max_examples=60)
def test_a_reply_looks_the_same_streamed_in_part_or_not_at_all(text: str, at: int, reasoning: str) -> None:
    called = ModelCalled(turn=TURN, model="m")
    deltas = [TextDelta(turn=TURN, text=piece) for piece in (text[: at // 2], text[at // 2 : at]) if piece]

    async def both() -> tuple[str, str]:
        streamed = await told(called, *deltas, replied(text, reasoning), TurnEnded(turn=TURN, text=text))
        stored = await told(called, replied(text, reasoning), TurnEnded(turn=TURN, text=text))
        return streamed.sent, stored.sent

    streamed, stored = anyio.run(both)
    assert streamed == stored if not (reasoning and deltas) else streamed.count("thought") == 1


async def test_the_whole_is_said_where_what_streamed_was_something_else() -> None:
    transcript = await told(TextDelta(turn=TURN, text="the end of it"), replied("All of it, to the end of it"))
    assert transcript.text == "the end of it\n\n[the whole reply:]\n\nAll of it, to the end of it\n"


async def test_a_reply_that_was_cut_off_is_closed_before_the_next() -> None:
    transcript = await told(
        ModelCalled(turn=TURN, model="m"),
        TextDelta(turn=TURN, text="Half of a"),
        ModelFailed(turn=TURN, model="m", error="overloaded", retry_in_s=2.0),
        ModelFailed(turn=TURN, model="m", error="overloaded", retry_in_s=4.52),
        ModelCalled(turn=TURN, model="m", attempt=3),
        TextDelta(turn=TURN, text="Whole."),
        replied("Whole."),
    )
    assert transcript.text.split("\n\n") == [
        "Half of a",
        "[that reply was cut off]",
        "m failed (overloaded); trying again in 2 s",
        "m failed again; trying again in 4.5 s",
        "Whole.\n",
    ]


async def test_a_cell_is_its_number_its_code_its_output_and_what_became_of_it() -> None:
    transcript = await told(
        UserSpoke(turn=TURN, text="count\nthem"),
        *cell("x = 1\nprint(x)\nx", "1\n[stderr]\nbeware\n[1, 2]\n", value="[1, 2]", variables=Changed(added=("x",))),
    )
    assert transcript.text.strip().split("\n") == [
        "> count",
        "  them",
        "",
        "  3 │ x = 1",
        "    │ print(x)",
        "    │ x",
        "    1",
        "    beware",
        "    [1, 2]",
        "    [ok 0.02 s; variables: added x]",
    ]
    assert "\x1b[31mbeware" in transcript.sent
    assert "\x1b[31m1" not in transcript.sent


async def test_a_line_of_code_that_does_not_fit_goes_on_further_in() -> None:
    transcript = await told(*cell("if x:\n    first_of_all(1, 2); second(3, 4)"), width=40)
    assert transcript.text.split("\n")[:4] == [
        "  3 │ if x:",
        "    │     first_of_all(1, 2);",
        "    │         second(3, 4)",
        "    [ok 0.02 s]",
    ]


async def test_a_long_output_is_collapsed_and_the_command_that_shows_it_is_named() -> None:
    shelf = Shelf()
    text = "".join(f"line {n}\n" for n in range(100_000))
    observation = text[:6000] + "\n[... left out ...]\n" + text[-3000:]
    transcript = KeptTranscript()
    renderer = EventRenderer(transcript, shelf.get)
    await tell(renderer, cell("loop", observation, blobs=(shelf.put(text.encode()),)))
    lines = [line.strip() for line in transcript.text.strip().split("\n")[1:-1]]
    assert lines == [
        *(f"line {n}" for n in range(14)),
        "... 99,978 lines more: /output 3",
        *(f"line {n}" for n in range(99_992, 100_000)),
    ]


async def test_output_is_seen_while_it_comes_in_a_bounded_region() -> None:
    pieces = tuple(OutputDelta(id=A, stream="stdout", text=f"step {n}\n" * 1000) for n in range(300))
    transcript = KeptTranscript()
    renderer = EventRenderer(transcript, Shelf().get)
    begun = time.monotonic()
    *start, finished = cell("loop", "(done)", between=pieces)
    await tell(renderer, start)
    took = time.monotonic() - begun
    shown = [live for live in transcript.lives if live]
    assert 1 <= len(shown) <= took / LIVE_S + 3
    assert all(live.count("\n") <= 8 for live in shown)
    assert "step" not in transcript.text
    assert renderer.describe_activity() == "running cell 3"
    await tell(renderer, [finished])
    assert transcript.lives[-1] is None
    assert renderer.describe_activity() == ""


async def test_a_progress_bar_is_seen_as_it_stands() -> None:
    bar = OutputDelta(id=A, stream="stderr", text="\r 10%|#   |\r 60%|###  |")
    transcript = await told(*cell(between=(bar,)))
    assert [live for live in transcript.lives if live and "60%" in live and "10%" not in live]
    done = await told(*cell(observation="[stderr]\n\r 10%|#   |\r100%|#####|\n"))
    assert "    100%|#####|" in done.text.split("\n")
    assert "10%|#   |" not in done.text


async def test_an_error_stresses_the_line_that_failed() -> None:
    error = (
        "Traceback (most recent call last):\n"
        '  File "<cell 3>", line 2, in <module>\n    f({})\n    ~^^^^\n'
        '  File "lib.py", line 9, in get\n    return d[k]\n'
        "KeyError: 'nope'\n  d: dict of 0"
    )
    transcript = await told(*cell("f({})", f"before\n{error}\n[a note]\n", outcome="error", error=error))
    assert "\x1b[1m    f({})" in transcript.sent
    assert "\x1b[1;31mKeyError: 'nope'" in transcript.sent
    assert transcript.text.count("KeyError") == 1
    assert transcript.text.index("before") < transcript.text.index("Traceback") < transcript.text.index("[a note]")
    assert "[error 0.02 s]" in transcript.text


async def test_calls_of_a_cell_grow_in_one_line() -> None:
    calls: list[Event | Delta] = []
    for n in range(47):
        one = ActionId(f"a_c{n}")
        calls += [
            ActionProposed(id=one, parent=A, by="cell", action=CallTool(tool="github.list_issues", args={})),
            ActionStarted(id=one, effect="pure", cell=3),
            OutputDelta(id=one, stream="stdout", text="[]"),
            ActionFinished(id=one, outcome="error" if n == 5 else "ok", observation="[]"),
        ]
    calls += [
        ActionProposed(id=B, parent=A, by="cell", action=CallTool(tool="github.delete", args={})),
        ActionDenied(id=B, reason="read-only"),
    ]
    transcript = await told(*cell("loop()", between=tuple(calls)))
    assert "    github.list_issues x 47 (1 failed)\n" in transcript.text
    assert "    github.delete (1 not run: read-only)\n" in transcript.text
    assert transcript.text.count("github") == 2
    assert any(live and "github.list_issues x" in live for live in transcript.lives)
    assert not any(live and "[]" in live for live in transcript.lives)


async def test_files_a_cell_changed_are_counted_and_small_changes_shown() -> None:
    shelf = Shelf()
    old, new = shelf.put(b"a\nthe price is 10\nc\n"), shelf.put(b"a\nthe price is 12\nc\nd\n")
    big = shelf.put(b"".join(b"%d\n" % n for n in range(100)))
    files = (
        FileChange(path="notes.txt", how="changed", before=old, after=new),
        FileChange(path="big.csv", how="changed", before=big, after=shelf.put(b"0\n")),
        FileChange(path="plot.png", how="added"),
    )
    transcript = await told(*cell(files=files, more_files=2), shelf=shelf)
    assert transcript.text.strip().split("\n")[1:-1] == [
        "    M notes.txt  +2 -1",
        "      @@ -1,3 +1,4 @@",
        "       a",
        "      -the price is 10",
        "      +the price is 12",
        "       c",
        "      +d",
        "    M big.csv  +0 -99",
        "    A plot.png",
        "    [and 2 other files]",
    ]
    assert "\x1b[7;31m10" in transcript.sent
    assert "\x1b[7;32m12" in transcript.sent


async def test_code_that_was_just_read_is_not_shown_again() -> None:
    said = "I run this:\n```python\nx = 1\n```\n"
    transcript = await told(replied(said), *cell("x = 1\n"))
    assert transcript.text.count("x = 1") == 1
    assert "  Ran as cell 3" in transcript.text
    other = await told(replied(said), *cell("x = 2\n"))
    assert "  3 │ x = 2" in other.text


async def test_commands_and_tools_are_a_line_each() -> None:
    shell = await told(*tool("shell", {"command": "ls | wc -l"}, "3\n"))
    assert shell.text.strip("\n").split("\n") == ["    │ $ ls | wc -l", "    3", "    [ok 0.10 s]"]
    for outcome in ("error", "ok"):  # as older logs have it
        failed = await told(*tool("shell", {"command": "false"}, "no\n[exit code 1]", outcome=outcome))
        assert failed.text.strip("\n").split("\n")[1:] == ["    no", "    [exit code 1 0.10 s]"]
    read = await told(*tool("read_file", {"path": "a.py"}, "".join(f"l{n}\n" for n in range(50))))
    assert "    │ read_file a.py\n    l0\n" in read.text
    assert "    ... 42 lines more: /output\n    l47\n" in read.text
    other = await told(*tool("github.search", {"q": "x", "n": 2}, "[]"))
    assert '    │ github.search q="x", n=2\n' in other.text
    edit = await told(*tool("edit_file", {"path": "a", "old": "b", "new": "c"}, "--- a\n+++ a\n@@ -1 +1 @@\n-b\n+c\n"))
    assert edit.text.count("-b") == 1


async def test_what_was_asked_and_denied_is_said_with_the_reason() -> None:
    transcript = KeptTranscript()
    renderer = EventRenderer(transcript, Shelf().get)
    proposed = ActionProposed(id=A, action=CallTool(tool="shell", args={"command": "rm x"}))
    await tell(renderer, [proposed, ApprovalRequested(id=A, reason="deletes", digest="d")])
    assert renderer.describe_activity() == "waiting for you"
    assert "$ rm x" in transcript.text
    await tell(
        renderer,
        [
            ApprovalDecided(id=A, verdict="deny", words="not that one"),
            ActionDenied(id=A, reason="the user said no"),
            ActionFinished(id=A, outcome="denied", observation="denied"),
        ],
    )
    assert transcript.text.endswith("    [denied: not that one]\n    [not run: the user said no]\n")
    assert transcript.text.count("$ rm x") == 1
    assert renderer.describe_activity() == ""


async def test_reasoning_is_a_line_unless_it_is_wanted() -> None:
    thoughts = [TextDelta(turn=TURN, text=text, reasoning=True) for text in ("First I\nlook ", "closely")]
    answer = TextDelta(turn=TURN, text="Done.")
    short = await told(*thoughts, answer, replied("Done.", "First I\nlook closely"))
    assert short.text == "thought for 0 s, 4 words: /thinking\n\nDone.\n"
    assert any(live and "thinking: ...First I look" in live for live in short.lives)
    whole = await told(*thoughts, answer, replied("Done.", "First I\nlook closely"), thinking=True)
    assert whole.text == "First I\nlook closely\n\nDone.\n"
    stored = await told(replied("Done.", "First I\nlook closely"))
    assert stored.text == "thought, 4 words: /thinking\n\nDone.\n"


async def test_what_happens_to_a_session_is_a_line_each() -> None:
    opened = SessionOpened(version="1", workspace="/w", model="m", mode="ask", sandbox="auto")
    transcript = await told(
        opened,
        SessionOpened(
            version="1", workspace="/w", model="m", mode="ask", sandbox="auto", restored=("df",), lost=("conn",)
        ),
        SessionChanged(title="Cars"),
        SessionChanged(title="Cars", model="gpt-5", mode="auto"),
        SessionRewound(to=2, undone=(3,)),
        ContextCompacted(),
        Noticed(text="the disk is nearly full"),
        ModelFailed(turn=TURN, model="a", error="no such model", instead="b"),
        TurnInterrupted(turn=TURN),
        TurnFailed(turn=TURN, error="no key; set OPENAI_API_KEY", temporary=True),
        TurnEnded(turn=TURN, text="An answer no reply had.", without=("the network",)),
        width=120,
    )
    assert transcript.text.strip().split("\n\n") == [
        "session reopened: restored df",
        "session reopened; lost: conn",
        "title: Cars",
        "model: gpt-5; mode: auto",
        "undid cell 3: variables and workspace files are as after cell 2.",
        "Context cleared. Variables and files stay.",
        "the disk is nearly full",
        "a failed (no such model); asking b instead",
        "interrupted; variables and files are as the last cell left them",
        "failed: no key; set OPENAI_API_KEY (try again later)",
        "An answer no reply had.",
        "unavailable during this turn: the network",
    ]


async def test_of_an_interrupted_cell_only_its_output_is_shown() -> None:
    words = "This was interrupted; variables and files are as the code left them.\nOutput until then:\n7"
    transcript = await told(*cell(observation=words, outcome="interrupted"))
    assert transcript.text.strip("\n").split("\n")[1:] == ["    7", "    [interrupted 0.02 s]"]


async def test_a_line_that_is_cut_says_how_to_see_all_of_it() -> None:
    transcript = await told(*cell(observation="x" * 1000))
    assert "characters more: /output 3" in " ".join(transcript.text.split())


async def test_an_answer_that_says_what_it_did_without_is_written_once() -> None:
    answer = "Here.\n\n(Done without the network.)"
    transcript = await told(replied("Here."), TurnEnded(turn=TURN, text=answer, without=("the network",)))
    assert transcript.text.strip() == answer


async def test_what_is_going_on_is_told_in_words() -> None:
    renderer = EventRenderer(KeptTranscript(), Shelf().get)
    assert renderer.describe_activity() == ""
    await renderer.render(entry(ModelCalled(turn=TURN, model="gpt-5")))
    assert renderer.describe_activity() == "asking gpt-5"
    await renderer.render(TextDelta(turn=TURN, text="hm", reasoning=True))
    assert renderer.describe_activity() == "thinking"
    await renderer.render(TextDelta(turn=TURN, text="Well"))
    assert renderer.describe_activity() == "answering"
    await renderer.render(entry(replied("Well")))
    await tell(renderer, tool("web.fetch", {}, "x")[:2])
    assert renderer.describe_activity() == "running web.fetch"
    await renderer.render(entry(TurnInterrupted(turn=TURN)))
    assert renderer.describe_activity() == ""


TABLE = b"""<style>p {}</style><table border="1" class="dataframe"><thead><tr><th></th><th>name</th><th>price</th></tr></thead>
<tbody><tr><th>0</th><td>Golf &amp; co</td><td>12.5</td></tr><tr><th>1</th><td>\xe6\x97\xa5\xe6\x9c\xac</td><td>NaN</td></tr></tbody></table><p>2 rows</p>"""


async def test_a_data_frame_is_a_table_and_said_once() -> None:
    shelf = Shelf()
    display = DisplayRef(mime={"text/plain": shelf.put(b"PLAIN"), "text/html": shelf.put(TABLE)})
    transcript = await told(*cell("df", "PLAIN\n", value="PLAIN", displays=(display,)), shelf=shelf)
    assert transcript.text.strip().split("\n")[1:] == [
        "        name        price",
        "    ─────────────────────",
        "    0   Golf & co    12.5",
        "    1   日本          NaN",
        "    2 rows",
        "    [ok 0.02 s]",
    ]


async def test_displays_are_counted_over_the_session_and_can_be_opened() -> None:
    shelf = Shelf()
    text = DisplayRef(mime={"text/plain": shelf.put(b"words")})
    bad = DisplayRef(mime={"image/png": shelf.put(b"\x1b]0;owned\x07"), "text/plain": shelf.put(b"<Figure>")})
    gone = DisplayRef(mime={"text/html": shelf.put(b"<h1>page</h1>")})
    first = cell("a", "words\n", displays=(text,))
    second = cell("b", "[shown to the user: image/png, 12 bytes]\n", 4, displays=(bad, gone))
    environment = pytest.MonkeyPatch()
    environment.setenv("TERM", "xterm-256color")
    environment.delenv("NO_COLOR", raising=False)
    with environment.context():
        transcript = await told(*first, *second, shelf=shelf, picture="blocks", width=100)
    environment.undo()
    assert transcript.text.strip().split("\n") == [
        "3 │ a",
        "    words",
        "    [ok 0.02 s]",
        "",
        "  4 │ b",
        "    picture (it is not a PNG): pinfold sessions show s_0123456789ab --display 2",
        "    page: pinfold sessions show s_0123456789ab --display 3",
        "    [ok 0.02 s]",
    ]


async def test_a_blob_that_is_gone_is_no_fault() -> None:
    shelf = Shelf()
    blob = shelf.put(b"x" * 20_000)
    display = DisplayRef(mime={"image/png": shelf.put(b"p")})
    shelf.blobs.clear()
    transcript = await told(*cell("a", "the ends\n", blobs=(blob,), displays=(display,)), shelf=shelf)
    assert "    the ends\n" in transcript.text
    assert "--display 1" in transcript.text


_IDS = st.sampled_from([A, B, ActionId("a_3")])
_SAID = st.text(max_size=12)
_ACTIONS = st.one_of(
    st.builds(RunCell, code=_SAID),
    st.builds(CallTool, tool=st.sampled_from(["shell", "edit_file", "write_file", "x"]), args=st.just({"path": "p"})),
    st.builds(CallTool, tool=st.just("shell"), args=st.fixed_dictionaries({"command": _SAID})),
)
_ITEMS = st.one_of(
    st.builds(ActionProposed, id=_IDS, action=_ACTIONS, parent=st.none() | _IDS),
    st.builds(ActionStarted, id=_IDS, effect=st.just("once"), cell=st.none() | st.integers(1, 2000)),
    st.builds(OutputDelta, id=_IDS, stream=st.just("stdout"), text=_SAID),
    st.builds(
        ActionFinished,
        id=_IDS,
        outcome=st.sampled_from(["ok", "error", "denied", "killed"]),
        observation=_SAID,
        value=st.none() | _SAID,
        error=st.none() | _SAID,
    ),
    st.builds(ApprovalRequested, id=_IDS, reason=_SAID, digest=st.just("")),
    st.builds(ActionDenied, id=_IDS, reason=_SAID),
    st.builds(TextDelta, turn=st.just(TURN), text=_SAID, reasoning=st.booleans()),
    st.builds(replied, _SAID, _SAID),
    st.builds(ModelCalled, turn=st.just(TURN), model=_SAID),
    st.builds(TurnEnded, turn=st.just(TURN), text=_SAID),
    st.builds(UserSpoke, turn=st.just(TURN), text=_SAID),
)


@given(st.lists(_ITEMS, max_size=14), st.booleans(), st.sampled_from([10, 33, 80]))
@settings(max_examples=80)
def test_no_order_of_events_breaks_the_telling(items: list[Event | Delta], thinking: bool, width: int) -> None:
    transcript = anyio.run(partial(told, *items, thinking=thinking, width=width))
    assert all(live is None or live.count("\n") <= 8 for live in transcript.lives)


async def test_each_sub_agent_has_one_line_while_it_runs_and_after() -> None:
    def output(text: str) -> OutputDelta:
        return OutputDelta(id=B, stream="stderr", text=text)

    record = [
        {"name": name, "session": "s_1", "status": "done", "line": f"{name}: done, 2 steps, 20 tokens"}
        for name in ("north", "south\x1b[2J")
    ]
    started = ActionProposed(id=B, action=CallTool(tool="agents.start", args={"tasks": []}), by="cell", parent=A)
    ended = ActionFinished(id=B, outcome="ok", observation=plain_json(record))
    between = (
        started,
        ActionStarted(id=B, effect="once"),
        output("north: step 1, 10 tokens\n"),
        output("south: step 1, 9 tokens\n"),
        output("north: step 2, 20 tokens\n"),
    )
    before, after = cell("agents.gather([])", between=between), cell(between=(started, ended))
    running = await told(*before[:-1], Noticed(text="an event is shown at once"), colour=False)
    lines = (running.lives[-1] or "").split("\n")
    assert [line.strip() for line in lines if line.strip()] == [
        "◇ north  step 2, 20 tokens",
        "◇ south  step 1, 9 tokens",
    ]
    shown = (await told(*after, colour=False)).sent
    assert "◇ north  done, 2 steps, 20 tokens" in shown
    assert "\x1b" not in shown
    assert "agents.start" not in shown
