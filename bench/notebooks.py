"""An exported notebook in the real Jupyter stack: run by nbclient and ipykernel, are its outputs those of the session?

    ./.venv/bin/python bench/notebooks.py [--jupyter PYTHON] [--cells PYTHON]

`--jupyter` is a Python that has nbclient and ipykernel (and what the cells import); without it one is made with uv,
from a package index. `--cells` runs the cells of the session. Prints JSON; exits 1 unless every output agrees.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.environments import make_environment

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGES = ("nbclient", "ipykernel", "pandas", "matplotlib", "ipython")
ANSWER = "answer(f'{total} units')"
CELLS = (
    "import sys\nimport pandas as pd\nsales = pd.DataFrame({'region': ['north', 'south'], 'units': [3, 4]})\nprint('rows', len(sales))\nsales",
    "print('to stderr', file=sys.stderr)\ntotal = int(sales.units.sum())\ntotal",
    "class Both:\n    def __repr__(self): return 'both'\n    def _repr_html_(self): return '<b>both</b>'\n\nfrom IPython.display import display, JSON\ndisplay(Both())\nprint('shown')",
    "half = total / 2\nprint('half', half)\nhalf / 0\nprint('never')",
    "import asyncio\nawait asyncio.sleep(0)\nlate = [total, half]\nlate",
    "!echo from a shell",
    "%%capture caught\nprint('hidden')",
    "caught.stdout",
    "def fib(n):\n    '''A string with \"quotes\" and \\\\ backslashes.'''\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\n[fib(n) for n in range(10)]",
    ANSWER,
)
UNDONE = "total = 0; sales = None"
LAST = "print(total, len(sales), late)"
RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(book)
NotebookClient(book, timeout=120, kernel_name="python3").execute()
nbformat.write(book, sys.argv[2])
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jupyter", type=Path)
    parser.add_argument("--cells", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        jupyter = given.jupyter or make_environment(folder / "jupyter", PACKAGES)
        exported = talked(folder, given.cells or jupyter)
        executed = folder / "executed.ipynb"
        subprocess.run([jupyter, "-c", RUN, exported, executed], check=True, cwd=folder / "work")
        before, after = (outputs(path) for path in (exported, executed))
        before[CELLS.index(ANSWER)] = [("stdout", "7 units\n")]  # what stands in for it prints; in a session it is told
    different = [
        {"cell": number, "session": mine, "jupyter": theirs}
        for number, (mine, theirs) in enumerate(zip(before, after, strict=True), 1)
        if mine != theirs
    ]
    report = {"cells": len(before), "outputs": sum(map(len, before)), "different": different}
    print(json.dumps(report, indent=2))
    return 1 if different or len(before) < len(CELLS) else 0


def talked(folder: Path, python: Path) -> Path:
    """A real session with these cells, and its notebook."""
    (folder / "work").mkdir()
    script = folder / "script.jsonl"
    replies: list[dict[str, Any]] = [{"calls": [{"tool": "python", "args": {"code": code}}]} for code in CELLS]
    script.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "PINFOLD_SANDBOX_PYTHON": str(python),
        **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")},
    }

    def pinfold(*args: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "pinfold", *args],
            check=True,
            cwd=folder / "work",
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    pinfold("run", "--model", f"scripted:{script}", "--title", "x", "Do it")
    pinfold("exec", "-s", "x", "-c", UNDONE)
    pinfold("undo", "x")
    pinfold("exec", "-s", "x", "-c", LAST)
    pinfold("export", "x", "--to", "ipynb", "-o", "exported.ipynb")
    return folder / "work" / "exported.ipynb"


def outputs(path: Path) -> list[list[Any]]:
    """Of each code cell of the session, in a form that two kernels can agree on: order among streams is not recorded."""
    book = json.loads(path.read_text("utf-8"))
    found: list[list[Any]] = []
    for cell in book["cells"]:
        if cell["cell_type"] != "code" or "except NameError" in "".join(cell["source"]):
            continue
        streams: dict[str, str] = {}
        rich: list[Any] = []
        for output in cell["outputs"]:
            match output:
                case {"output_type": "stream", "name": name, "text": text}:
                    # A shell command has a terminal there, and with it that terminal's line ends.
                    streams[name] = streams.get(name, "") + "".join(text).replace("\r\n", "\n")
                case {"output_type": "error", "ename": name, "evalue": value}:
                    rich.append([name, value])
                case {"output_type": kind, "data": data}:
                    rich.append([kind, {mime: "".join(text) for mime, text in data.items()}])
                case _:
                    pass
        found.append([*sorted(streams.items()), *rich])
    return found


if __name__ == "__main__":
    sys.exit(main())
