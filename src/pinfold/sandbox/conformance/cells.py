"""Checks of ordinary cells: values, output, errors, await, files, variables."""

from __future__ import annotations

import anyio

from pinfold.sandbox.conformance.capabilities import Bench, check, check_session, expect, expect_outcome, expect_refused
from pinfold.sandbox.contract import FileRefused, Limits, Session, Stream

RICH = """
class Rich:
    def __init__(self, n): self.n = n
    def __repr__(self): return f'Rich {self.n}'
    def _repr_html_(self): return f'<b>{self.n}</b>'
"""


@check_session()
async def the_last_expression_is_the_value(session: Session) -> None:
    expect_outcome(await session.run("x = 41\nx + 1"), status="ok", value="42")


@check_session()
async def a_cell_without_a_last_expression_has_no_value(session: Session) -> None:
    expect_outcome(await session.run("x = 41"), status="ok")
    expect_outcome(await session.run("None"), status="ok")


@check_session()
async def variables_last_from_cell_to_cell(session: Session) -> None:
    await session.run("def double(n):\n    return 2 * n\nx = 21")
    expect_outcome(await session.run("double(x)"), status="ok", value="42")


@check()
async def two_sessions_share_nothing(bench: Bench) -> None:
    async with bench.session() as one, bench.session() as other:
        await one.run("x = 1")
        expect((await other.run("x")).status == "error", "a variable of one session is seen in another")


@check_session()
async def a_cell_runs_as_main(session: Session) -> None:
    expect_outcome(await session.run("__name__"), status="ok", value="'__main__'")


@check_session()
async def stdout_and_stderr_come_apart(session: Session) -> None:
    outcome = await session.run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    expect((outcome.stdout, outcome.stderr) == ("out\n", "err\n"), f"got {outcome!r}")


@check_session()
async def output_of_a_cell_is_not_output_of_the_next(session: Session) -> None:
    await session.run("print('first')")
    outcome = await session.run("print('second')")
    expect(outcome.stdout == "second\n", f"got {outcome.stdout!r}")


@check_session()
async def output_comes_while_the_cell_still_runs(session: Session) -> None:
    heard = anyio.Event()

    def listen(_stream: Stream, text: str) -> None:
        if "now" in text:
            heard.set()

    async with anyio.create_task_group() as tasks:

        async def stop_when_heard() -> None:
            await heard.wait()
            await session.interrupt()

        tasks.start_soon(stop_when_heard)
        outcome = await session.run("print('now', flush=True)\nwhile True: pass", timeout_s=10, on_output=listen)
        tasks.cancel_scope.cancel()
        expect(outcome.status == "interrupted", f"the output came only at the end: {outcome!r}")


@check_session()
async def streamed_output_is_the_output(session: Session) -> None:
    parts: list[str] = []
    outcome = await session.run(
        "for i in range(2000): print(i, 'é')", on_output=lambda _stream, text: parts.append(text)
    )
    expect("".join(parts) == outcome.stdout, "what was streamed is not what the outcome holds")
    expect(outcome.stdout.endswith("1999 é\n"), f"the end is missing: {outcome.stdout[-40:]!r}")


@check()
async def output_beyond_the_limit_is_counted_and_dropped(bench: Bench) -> None:
    async with bench.session(Limits(output_bytes=1000)) as session:
        outcome = await session.run("import sys\nsys.stdout.write('x' * 500_000)\nNone")
        got = (outcome.status, len(outcome.stdout), outcome.dropped_bytes)
        expect(got == ("ok", 1000, 499_000), f"got {got!r}")


@check_session()
async def bytes_that_are_not_text_are_replaced(session: Session) -> None:
    outcome = await session.run("import os\nos.write(1, b'a\\xff\\xfeb')\nprint('\\ud800')")
    expect(outcome.status == "ok", f"got {outcome!r}")
    expect(outcome.stdout.startswith("a\ufffd\ufffdb"), f"got {outcome.stdout!r}")


@check_session()
async def an_exception_is_an_error_with_its_traceback(session: Session) -> None:
    outcome = await session.run("x = 1\nx / 0")
    expect(outcome.status == "error", f"got {outcome!r}")
    error = outcome.error or ""
    expect("ZeroDivisionError" in error and "x / 0" in error, f"got {error!r}")
    expect_outcome(await session.run("x"), status="ok", value="1")


@check_session()
async def a_syntax_error_is_an_error(session: Session) -> None:
    outcome = await session.run("def (")
    expect(outcome.status == "error" and "SyntaxError" in (outcome.error or ""), f"got {outcome!r}")


@check_session()
async def exit_is_an_error_and_the_session_goes_on(session: Session) -> None:
    await session.run("x = 1")
    outcome = await session.run("import sys\nsys.exit(3)")
    expect(outcome.status == "error" and "SystemExit" in (outcome.error or ""), f"got {outcome!r}")
    expect_outcome(await session.run("x"), status="ok", value="1")


@check_session()
async def a_failing_repr_is_the_cells_error(session: Session) -> None:
    await session.run("class Odd:\n    def __repr__(self):\n        raise BaseException('no text')")
    outcome = await session.run("Odd()")
    expect(outcome.status == "error" and "no text" in (outcome.error or ""), f"got {outcome!r}")
    expect_outcome(await session.run("1"), status="ok", value="1")


@check_session()
async def top_level_await_and_asyncio_run_both_work(session: Session) -> None:
    await session.run("import asyncio\nasync def one():\n    await asyncio.sleep(0)\n    return 1")
    expect_outcome(await session.run("await one()"), status="ok", value="1")
    expect_outcome(await session.run("asyncio.run(one())"), status="ok", value="1")
    expect_outcome(await session.run("await one() + await one()"), status="ok", value="2")


@check_session()
async def input_fails_clearly(session: Session) -> None:
    outcome = await session.run("input('name? ')", timeout_s=10)
    expect(outcome.status == "error" and "EOFError" in (outcome.error or ""), f"got {outcome!r}")


@check_session()
async def the_duration_is_measured(session: Session) -> None:
    outcome = await session.run("import time\ntime.sleep(0.05)")
    expect(0.05 <= outcome.duration_s < 30, f"a cell of 0.05 s is said to have taken {outcome.duration_s} s")


@check_session()
async def a_rich_value_is_displayed_and_its_text_is_the_value(session: Session) -> None:
    await session.run(RICH)
    outcome = await session.run("Rich(1)")
    expect((outcome.status, outcome.value) == ("ok", "Rich 1"), f"got {outcome!r}")
    expect([display.mime.get("text/html") for display in outcome.displays] == [b"<b>1</b>"], f"got {outcome!r}")
    expect(not (await session.run("1")).displays, "a display came again with the next cell")


@check_session()
async def displays_come_in_order(session: Session) -> None:
    await session.run(RICH)
    outcome = await session.run("for n in range(3): display(Rich(n))\nRich(3)")
    shown = [display.mime.get("text/html") for display in outcome.displays]
    expect(shown == [b"<b>0</b>", b"<b>1</b>", b"<b>2</b>", b"<b>3</b>"], f"got {outcome!r}")


@check_session()
async def a_display_that_fails_does_not_break_the_cell(session: Session) -> None:
    await session.run(RICH.replace("return f'<b>", "raise ValueError(f'<b>").replace("</b>'", "</b>')"))
    outcome = await session.run("Rich(1)")
    expect((outcome.status, outcome.value) == ("ok", "Rich 1"), f"got {outcome!r}")


@check_session()
async def many_and_large_displays_are_bounded(session: Session) -> None:
    await session.run(RICH)
    outcome = await session.run("for n in range(1000): display(Rich(n))\nRich('x' * 50_000_000)")
    expect(outcome.status == "ok", f"got status {outcome.status!r}")
    size = sum(len(data) for display in outcome.displays for data in display.mime.values())
    expect(len(outcome.displays) < 1000 and size < 50_000_000, "displays have no bound")
    expect_outcome(await session.run("1"), status="ok", value="1")


TRAPS = """
ran = []
class Trap:
    def __getattribute__(self, name): ran.append(name); raise BaseException(name)
    def __repr__(self): ran.append('repr'); return 'x'
    def __len__(self): ran.append('len'); return 1
    def __sizeof__(self): ran.append('sizeof'); return 1
class TrapList(list):
    def __len__(self): ran.append('len'); return 1
trap, traps = Trap(), TrapList()
ran.clear()
"""


@check_session()
async def a_file_put_is_the_file_got(session: Session) -> None:
    content = bytes(range(256)) * 1000
    await session.put("deep/er/file.bin", content)
    expect(await session.get("deep/er/file.bin") == content, "the file came back changed")
    await session.put("deep/er/file.bin", b"short")
    expect(await session.get("deep/er/file.bin") == b"short", "the old end of the file is still there")


@check_session()
async def the_working_folder_is_the_workspace(session: Session) -> None:
    await session.put("in.txt", b"from the host")
    expect_outcome(await session.run("open('in.txt').read()"), status="ok", value="'from the host'")
    await session.run("f = open('out.txt', 'w'); _ = f.write('from the cell'); f.close()")
    expect(await session.get("out.txt") == b"from the cell", "a cell's file is not in the workspace")


@check_session()
async def put_and_get_stay_in_the_workspace_when_the_program_moves(session: Session) -> None:
    await session.put("here.txt", b"here")
    await session.run("import os\nos.mkdir('sub')\nos.chdir('sub')")
    expect(await session.get("here.txt") == b"here", "the program's chdir moved the workspace")


@check()
async def a_path_out_of_the_workspace_is_refused(bench: Bench) -> None:
    secret = bench.outside / "secret"
    secret.write_bytes(b"a secret of the host")
    async with bench.session() as session:
        link = f"os.symlink({str(bench.outside)!r}, 'link')\nos.symlink({str(secret)!r}, 'file-link')"
        await session.run(f"import os\n{link}\nos.symlink('../outside', 'up')")
        escapes = (str(secret), "../outside/secret", "a/../../outside/secret", "link/secret", "up/secret", "file-link")
        for path in (*escapes, "up/new", "", ".", "a\0b"):
            await expect_refused(session.get(path), FileRefused, f"get({path!r}) was done")
            await expect_refused(session.put(path, b"planted"), FileRefused, f"put({path!r}) was done")
    expect(secret.read_bytes() == b"a secret of the host", "a file outside was written")
    expect([path.name for path in bench.outside.iterdir()] == ["secret"], "a file outside was made")


@check_session()
async def a_missing_file_is_refused(session: Session) -> None:
    refused = await expect_refused(session.get("missing.txt"), FileRefused, "a missing file was got")
    expect("missing.txt" in str(refused), f"the reason does not name the file: {refused}")


@check()
async def a_file_over_the_limit_is_refused(bench: Bench) -> None:
    async with bench.session(Limits(file_bytes=1000)) as session:
        await session.run("f = open('big', 'w'); _ = f.write('x' * 1001); f.close()")
        for attempt in (session.get("big"), session.put("other", b"x" * 1001)):
            await expect_refused(attempt, FileRefused, "a file over the limit passed")
        await session.put("small", b"x" * 1000)
        expect(len(await session.get("small")) == 1000, "a file of exactly the limit must pass")


@check_session()
async def variables_are_listed(session: Session) -> None:
    await session.run("n = 1\nitems = [1, 2, 3]\n_hidden = 1")
    listed = {variable.name: variable for variable in await session.variables()}
    expect(listed["n"].type == "int" and listed["items"].type == "list", f"got {listed!r}")
    expect("_hidden" not in listed, "names with an underscore are not for the list")


@check_session()
async def a_variable_tells_the_cell_that_bound_it_or_none(session: Session) -> None:
    await session.run("first = second = 1000")
    await session.run("second = 1000\nprint(first)")
    cells = {variable.name: variable.cell for variable in await session.variables()}
    expect(cells in ({"first": 1, "second": 2}, {"first": None, "second": None}), f"got {cells!r}")


@check_session()
async def listing_variables_never_runs_their_code(session: Session) -> None:
    await session.run(TRAPS)
    listed = await session.variables()
    expect({"trap", "traps"} <= {variable.name for variable in listed}, f"got {listed!r}")
    expect_outcome(await session.run("ran"), status="ok", value="[]")
