"""`python -m pinfold` and the `pinfold` command."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    gc.disable()  # until the command is loaded: a twentieth of a start would go into looking for garbage
    try:
        from pinfold.front.cli.main import run_command_line

        run_command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
