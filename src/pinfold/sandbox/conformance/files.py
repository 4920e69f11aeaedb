"""Checks of the workspace, of `put` and `get`, and of the list of variables."""

from __future__ import annotations

from pinfold.sandbox.conformance.bench import Bench, ContractBroken, check, check_session, expect, expect_outcome
from pinfold.sandbox.contract import FileRefused, Limits, Session, Variable

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


async def _expect_refused(session: Session, path: str) -> None:
    try:
        got = await session.get(path)
        raise ContractBroken(f"get({path!r}) gave {got[:80]!r}")
    except FileRefused:
        pass
    try:
        await session.put(path, b"planted")
        raise ContractBroken(f"put({path!r}) was done")
    except FileRefused:
        pass


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
            await _expect_refused(session, path)
    expect(secret.read_bytes() == b"a secret of the host", "a file outside was written")
    expect([path.name for path in bench.outside.iterdir()] == ["secret"], "a file outside was made")


@check_session()
async def a_missing_file_is_refused(session: Session) -> None:
    try:
        got = await session.get("missing.txt")
    except FileRefused as refused:
        expect("missing.txt" in str(refused), f"the reason does not name the file: {refused}")
        return
    expect(None, f"a missing file gave {got!r}")


@check()
async def a_file_over_the_limit_is_refused(bench: Bench) -> None:
    async with bench.session(Limits(file_bytes=1000)) as session:
        await session.run("f = open('big', 'w'); _ = f.write('x' * 1001); f.close()")
        await _expect_refused_only(session)
        await session.put("small", b"x" * 1000)
        expect(len(await session.get("small")) == 1000, "a file of exactly the limit must pass")


async def _expect_refused_only(session: Session) -> None:
    for attempt in (session.get("big"), session.put("other", b"x" * 1001)):
        try:
            await attempt
        except FileRefused:
            continue
        raise ContractBroken("a file over the limit passed")


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
    listed: tuple[Variable, ...] = await session.variables()
    expect({"trap", "traps"} <= {variable.name for variable in listed}, f"got {listed!r}")
    expect_outcome(await session.run("ran"), status="ok", value="[]")
