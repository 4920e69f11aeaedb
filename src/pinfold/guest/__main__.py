"""Starts the guest: `PYTHON -I .../guest/__main__.py PROGRAM FD ...`. Not a module to import.

PROGRAM is `serve` (runs cells in this process), `launcher`, `lite`, `zygote` or `probe`.

This folder is loaded as package `_pinfold_guest` and never put on `sys.path`, so `import files` in a cell
finds the program's own `files.py` or nothing, never a module of the guest.
"""

import sys
from importlib import import_module
from types import ModuleType


def start() -> None:
    package = ModuleType("_pinfold_guest")
    package.__path__ = [__file__.rpartition("/")[0]]
    sys.modules[package.__name__] = package
    module = "serve" if sys.argv[1] == "serve" else f"startup.{sys.argv[1]}"
    import_module(f"_pinfold_guest.{module}").main(sys.argv[2:])


if __name__ == "__main__":
    start()
