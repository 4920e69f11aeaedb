"""Runs the command line many times in one process: a list of argument lists, as JSON, in the file that COMMANDS names.

With `weak` as its argument the build is weakened on purpose: what is shown goes out as it came in.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def weaken() -> None:
    import pinfold.text

    def as_it_is(text: str) -> str:
        return text

    for name in ("presentable", "presentable_line", "printable", "printable_line"):
        setattr(pinfold.text, name, as_it_is)


def main() -> None:
    if "weak" in sys.argv:
        weaken()
    from pinfold.front.cli.main import run_command_line

    commands = json.loads(Path(os.environ["COMMANDS"]).read_text(encoding="utf-8"))
    for command in commands:
        try:
            run_command_line(command)
        except SystemExit:
            continue


if __name__ == "__main__":
    main()
