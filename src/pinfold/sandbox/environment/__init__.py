"""The Python environment cells run in: made once by uv, from wheels only, kept by a key of what went in.

Nothing that is installed is ever run on the host, not even a `.pth` file.
"""

from pinfold.sandbox.environment.builder import build, find_unfinished, install
from pinfold.sandbox.environment.store import (
    PACKAGES,
    SIZE,
    Environment,
    EnvironmentFailed,
    Interpreter,
    Recipe,
    check_python,
    choose_python,
    default_python,
    environments,
    find,
    modules,
    normalise_package,
    running_python,
)
from pinfold.sandbox.environment.uv import OnProgress, Progress

__all__ = [
    "PACKAGES",
    "SIZE",
    "Environment",
    "EnvironmentFailed",
    "Interpreter",
    "OnProgress",
    "Progress",
    "Recipe",
    "build",
    "check_python",
    "choose_python",
    "default_python",
    "environments",
    "find",
    "find_unfinished",
    "install",
    "modules",
    "normalise_package",
    "running_python",
]
