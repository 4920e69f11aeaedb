"""Commands and magics: what a notebook user types that is not Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from pinfold.sandbox import Outcome, Session, Stream

pytestmark = pytest.mark.integration


async def interrupted(session: Session, code: str) -> Outcome:
    """Run it, and interrupt it as soon as it has said `now`; again if a library swallowed that, as a user would."""
    heard, ended = anyio.Event(), anyio.Event()
    outcomes: list[Outcome] = []

    def listen(_stream: Stream, text: str) -> None:
        if "now" in text:
            heard.set()

    async def run() -> None:
        outcomes.append(await session.run(code, timeout_s=60, on_output=listen))
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await heard.wait()
        while not ended.is_set():
            await session.interrupt()
            with anyio.move_on_after(5):
                await ended.wait()
    return outcomes[0]


async def test_a_command_writes_to_the_cells_streams_as_it_is(session: Session) -> None:
    outcome = await session.run(
        "print('before')\n!printf 'one\\ntwo\\n'; echo bad >&2; exit 3\nprint('after', _exit_code)"
    )
    assert (outcome.status, outcome.stdout, outcome.stderr) == ("ok", "before\none\ntwo\nafter 3\n", "bad\n")


async def test_a_command_stands_wherever_a_statement_may(session: Session) -> None:
    outcome = await session.run(
        'text = """\n!not a command\n"""\nname = "x y"\nfor n in range(2):\n    !echo {n} "$name" ${n}\n'
        "lines = !printf 'a\\nb'\nlines, text"
    )
    assert (outcome.status, outcome.stdout) == ("ok", "0 x y\n1 x y\n"), outcome.error
    assert outcome.value == "(['a', 'b'], '\\n!not a command\\n')"


async def test_braces_of_the_shell_stay_the_shells(session: Session) -> None:
    outcome = await session.run("!echo 'a b' | awk '{print $2}'")
    assert outcome.stdout == "b\n"


@pytest.mark.parametrize(
    "code",
    [
        "!echo now; sleep 60",
        "!trap '' INT; echo now; sleep 60",
        "print('now', flush=True)\nx = !sleep 60",
        "%%bash\necho now\nsleep 60",
    ],
)
async def test_a_command_is_interrupted(session: Session, code: str) -> None:
    outcome = await interrupted(session, code)
    assert outcome.status == "interrupted", outcome
    assert (await session.run("1")).value == "1"


async def test_a_script_runs_and_its_failure_is_the_cells(session: Session) -> None:
    outcome = await session.run("%%bash\nx=5\necho $x\n")
    assert (outcome.status, outcome.stdout) == ("ok", "5\n")
    outcome = await session.run("%%sh\necho out\nexit 4")
    assert (outcome.status, outcome.stdout) == ("error", "out\n")
    assert "exit status 4" in (outcome.error or "")


@pytest.mark.parametrize(
    ("code", "packages"),
    [
        ("!pip install -q requests 'pandas>=2'", "requests pandas>=2"),
        ("!python3 -m pip install --upgrade polars", "polars"),
        ("x = !uv pip install -i https://example.org/simple httpx", "httpx"),
        ("!conda install -y xarray", "xarray"),
    ],
)
async def test_installing_from_a_cell_names_the_tool_for_it(session: Session, code: str, packages: str) -> None:
    outcome = await session.run(code)
    assert outcome.status == "error"
    assert (outcome.error or "").splitlines()[-1] == (
        f"InstallElsewhere: packages are not installed from a cell: use the install tool with {packages!r}"
    )


@pytest.mark.parametrize("code", ["!echo pip install x", "!ls; true"])
async def test_a_command_that_installs_nothing_is_left_alone(session: Session, code: str) -> None:
    assert (await session.run(code)).status == "ok"


async def test_without_ipython_magics_say_what_they_need(session: Session) -> None:
    if (await session.run("import IPython")).status == "ok":
        pytest.skip(f"{sys.executable} has IPython")
    outcome = await session.run("%timeit 1")
    assert outcome.status == "error"
    assert "magics need IPython, which is not in this environment" in (outcome.error or "")
    assert (await session.run("!echo yes")).stdout == "yes\n"


async def test_a_syntax_error_is_told_in_the_users_words(session: Session) -> None:
    outcome = await session.run("x = 1\nif x\n    print(x)")
    assert (outcome.error or "").splitlines() == [
        '  File "<cell 1>", line 2',
        "    if x",
        "        ^",
        "SyntaxError: expected ':'",
    ]


async def test_magics_of_ipython(data: Session) -> None:
    assert "per loop" in (await data.run("%timeit -n 2 -r 2 sum(range(10))")).stdout
    outcome = await data.run("%%time\nx = 20\nx + 1")
    assert ("Wall time" in outcome.stdout, outcome.value) == (True, "21")
    await data.run("%%capture kept\nprint('hidden')\n!echo sub\ndisplay(1)\n2")
    assert (await data.run("kept.stdout, len(kept.outputs)")).value == "('hidden\\nsub\\n', 2)"
    outcome = await data.run(
        "%matplotlib inline\n%env COLOUR=red\n%cd /tmp\nimport os\nos.getcwd(), os.environ['COLOUR']"
    )
    assert outcome.value == "('/tmp', 'red')", outcome
    assert "Return the number of items" in (await data.run("len?")).stdout
    assert len((await data.run("import pandas\npandas.DataFrame??")).stdout) < 25_000
    outcome = await data.run("%pip install tqdm")
    assert "use the install tool with 'tqdm'" in (outcome.error or "")
    outcome = await data.run("%%time\n1 / 0")
    assert "ZeroDivisionError" in (outcome.error or "")
    outcome = await data.run("%nosuch")
    assert "`%nosuch` not found" in (outcome.error or "")


async def test_ipython_leaves_no_thread_no_file_and_no_names(data: Session, tmp_path: Path) -> None:
    await data.run("%time 1\n%who")
    outcome = await data.run(
        "import os, threading\n"
        "(os.listdir(os.path.expanduser('~')), len(os.listdir('/proc/self/task')), threading.active_count())"
    )
    assert outcome.value == "([], 1, 1)"
    assert {variable.name for variable in await data.variables()} == {"os", "threading"}
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - names only


async def test_a_changed_module_is_reloaded(data: Session) -> None:
    await data.put("lib.py", b"def f(): return 1")
    await data.run("%load_ext autoreload\n%autoreload 2\nimport lib")
    await data.put("lib.py", b"def f(): return 22")
    await data.run("import os\nos.utime('lib.py', (2e9, 2e9))")
    assert (await data.run("lib.f()")).value == "22"


async def test_a_magic_is_interrupted(data: Session) -> None:
    await data.run("%time 1")
    outcome = await interrupted(data, "print('now', flush=True)\n%time\n%timeit -n 1 -r 1 __import__('time').sleep(60)")
    assert outcome.status == "interrupted"
    assert (await data.run("1")).value == "1"
