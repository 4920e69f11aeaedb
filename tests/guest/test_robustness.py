"""Nothing a program does in the real sandbox puts its cells out of step."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pinfold.sandbox import Limits, Session, open_session

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

WORK = "def double(n):\n    return 2 * n\n"


@pytest.fixture
async def jailed(workspace: Path) -> AsyncGenerator[Session]:
    async with open_session(workspace, "namespaces", limits=Limits(cell_s=30, stream_bytes=1 << 20)) as session:
        await session.run("kept = 'é漢🎉'")
        yield session


async def in_step(session: Session) -> None:
    outcome = await session.run("print('ok', kept)\ndisplay(kept)\nkept")
    assert (outcome.status, outcome.value) == ("ok", "'é漢🎉'")
    assert "ok é漢🎉\n" in outcome.stdout
    assert [display.mime["text/plain"] for display in outcome.displays][-1:] == ["'é漢🎉'".encode()]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.write(1, bytes(range(256)) * 1000)\nos.write(2, b'\\xff\\0')",
        "import sys\nsys.stdout.buffer.write(b'\\x08\\0\\0\\0\\0\\0\\0\\0{\"id\":2}')",
        "import sys\nfor _ in range(200): sys.stdout.write('x' * 1_000_000)",
        "import sys\nsys.stdout.close()",
        "import os\nos.close(1); os.close(2)",
        "import sys\nsys.exit('bye')",
        "raise SystemExit(0)",
        "import threading, time\nthreading.Thread(target=lambda: [print('tick') or time.sleep(0.001) for _ in range(50)]).start()",
        "import threading\nthreading.Thread(target=lambda: 1 / 0).start()",
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'print(1)'])",
        "import asyncio\nasyncio.run(asyncio.sleep(0))\nawait asyncio.sleep(0)",
        "import asyncio\nloop = asyncio.new_event_loop()\nloop.run_until_complete(asyncio.sleep(0))\nloop.close()",
        "import os\nif os.fork() == 0: raise ValueError('child')\nos.wait()",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n    list(pool.map(display, range(20)))",
        "import builtins\nbuiltins.display = None\ndel builtins.display\nfrom sys import modules\nmodules['_pinfold_guest.cells.displays'].install(modules['_pinfold_guest.cells.displays']._current)",
        "import sys\nsys.meta_path.clear()",
        "class Key:\n    def __hash__(self): return 1\nglobals()[Key()] = 1\nKey.__hash__ = lambda _: 1 / 0",
        "import threading\ndef bind():\n    for n in range(20000): globals()[f'n{n}'] = n\nthreading.Thread(target=bind).start()",
        "import sys\nsys.modules['matplotlib.pyplot'] = 5\nsys.modules['matplotlib._pylab_helpers'] = 5",
        "class Odd:\n    def __class_getitem__(c, k): raise KeyError\n    def __getattribute__(self, n): raise BaseException(n)\n    def __repr__(self): return 'odd'\nOdd()",
        "class Odd:\n    def _repr_html_(self): import sys; sys.exit(3)\ndisplay(Odd())",
        "class Odd(bytes):\n    def __len__(self): return 10**9\nclass Page:\n    def _repr_png_(self): return Odd(b'abc')\nPage()",
        "%%bash\nkill -9 $$",
        "!kill -INT $$",
    ],
)
async def test_the_next_cell_is_in_step(jailed: Session, code: str) -> None:
    outcome = await jailed.run(code, timeout_s=20)
    assert outcome.status in ("ok", "error"), outcome
    await in_step(jailed)


@pytest.mark.parametrize("code", ["import os\nos._exit(0)", "import os\nos.kill(os.getpid(), 11)"])
async def test_an_interpreter_that_is_gone_is_said_and_replaced(jailed: Session, code: str) -> None:
    outcome = await jailed.run(f"print('before')\ndisplay(1)\n{code}")
    assert (outcome.status, outcome.stdout, outcome.rolled_back) == ("killed", "before\n", True)
    assert (await jailed.run("1")).value == "1"


@pytest.mark.parametrize("method", ["fork", "spawn"])
async def test_multiprocessing_works_either_way(jailed: Session, method: str) -> None:
    await jailed.put("work.py", WORK.encode())
    outcome = await jailed.run(
        "import multiprocessing, work\n"
        f"with multiprocessing.get_context({method!r}).Pool(2) as pool:\n    done = pool.map(work.double, range(4))\ndone"
    )
    assert outcome.value == "[0, 2, 4, 6]", outcome
    await in_step(jailed)


async def test_a_forged_display_ends_the_guest_and_is_not_taken(jailed: Session) -> None:
    outcome = await jailed.run(
        "import json, os, struct\n"
        "header = json.dumps({'id': 2, 'status': 'ok', 'displays': [[['../x', 1]]]}).encode()\n"
        "frame = struct.pack('<II', len(header), 1) + header + b'x'\n"
        "for fd in range(3, 64):\n"
        "    try:\n        os.write(fd, frame)\n    except OSError:\n        pass\n"
    )
    assert (outcome.status, outcome.displays) == ("killed", ())
    assert "channel was broken" in (outcome.error or "")
    assert (await jailed.run("1")).value == "1"
