"""The Python environment cells run in: made once by uv, from wheels only, kept by a key of what went in.

Nothing that is installed is ever run on the host, not even a `.pth` file.
"""

from pinfold.sandbox.environment.builder import build, find_unfinished
from pinfold.sandbox.environment.errors import EnvironmentFailed
from pinfold.sandbox.environment.interpreter import Interpreter, check_python, choose_python, running_python
from pinfold.sandbox.environment.package_install import install
from pinfold.sandbox.environment.progress import OnProgress, Phase, Progress
from pinfold.sandbox.environment.recipe import PACKAGES, SIZE, Recipe, modules, normalise_package
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
