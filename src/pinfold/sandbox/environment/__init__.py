"""The Python environment cells run in: built once by uv, from wheels only, and stored under a hash of its recipe.

No installed code is ever run on the host, not even a `.pth` file.
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
