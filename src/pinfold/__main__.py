"""`python -m pinfold` and the `pinfold` command."""

from __future__ import annotations

import gc
import os
import sys

_LEAVE_HELPER = ("exec", "run", "resume", "chat")
"""Commands that are often followed by another of them, so they leave a warm helper process behind."""


def main() -> None:
    gc.disable()  # until the command is loaded: garbage collection would take 5 % of the start
    try:
        if sys.argv[1:2] == ["exec"]:
            from pinfold.front.cli.relay import relay

            if (code := relay()) is not None:
                os._exit(code)  # nothing is left to clean up
        from pinfold.front.cli.main import run_command_line

        try:
            run_command_line()
        finally:
            if "pinfold.sandbox.providers.launcher" in sys.modules and (sys.argv[1:2] or ["chat"])[0] in _LEAVE_HELPER:
                from pinfold.app.ownership.warm_helper import start_helper

                start_helper()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
