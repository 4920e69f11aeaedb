"""The Python environment cells run in: made once by uv, from wheels only, kept by a key of what went in.

Nothing that is installed is ever run on the host, not even a `.pth` file.
"""

from pinfold.sandbox.environment.adding import install
from pinfold.sandbox.environment.errors import EnvironmentFailed
from pinfold.sandbox.environment.interpreter import (
    Interpreter,
    checked_python,
    preferred_python,
    running_python,
)
from pinfold.sandbox.environment.making import build, unfinished
from pinfold.sandbox.environment.progress import OnProgress, Phase, Progress
from pinfold.sandbox.environment.recipe import PACKAGES, SIZE, Recipe, modules, normalised
from pinfold.sandbox.environment.store import Environment, default_python, environments, find

__all__ = [
    "PACKAGES",
    "SIZE",
    "Environment",
    "EnvironmentFailed",
    "Interpreter",
    "OnProgress",
    "Phase",
    "Progress",
    "Recipe",
    "build",
    "checked_python",
    "default_python",
    "environments",
    "find",
    "install",
    "modules",
    "normalised",
    "preferred_python",
    "running_python",
    "unfinished",
]
