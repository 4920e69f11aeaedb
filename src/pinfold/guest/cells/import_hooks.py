"""Meets foreign modules as they are imported, to fit them to where they run. Imports none of them."""

from __future__ import annotations

import sys

from . import displays, figures, losses, plots

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

WATCHED: dict[str, Callable[[ModuleType], None]] = {
    "matplotlib.pyplot": figures.patch_pyplot,
    "pandas": losses.patch_pandas,
    "plotly.io._renderers": plots.patch_plotly,
    "IPython.core.display_functions": displays.patch_ipython,
}


class ImportHook:
    """Finds nothing itself; adds a step to the loading of the few modules in `WATCHED`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        adopt = WATCHED.get(name)
        if adopt is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                _add_step(spec, adopt)
                return spec
        return None


def _add_step(spec: ModuleSpec, adopt: Callable[[ModuleType], None]) -> None:
    loader = spec.loader
    if loader is None:
        return
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        adopt(module)

    loader.exec_module = exec_module


def install_hooks() -> None:
    """Also fits what is there already. Idempotent."""
    if not any(type(finder) is ImportHook for finder in sys.meta_path):
        sys.meta_path.insert(0, ImportHook())
    for name, adopt in WATCHED.items():
        if name in sys.modules:
            adopt(sys.modules[name])
