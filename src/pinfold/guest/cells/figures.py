"""matplotlib's figures as pictures: each shown once, by `show`, by `display`, as a value, or when its cell ends.

Never imports matplotlib; a program that did not either pays nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

BACKEND = "agg"
PIXELS = 12_000_000
"""Most of one picture; a larger figure is drawn with fewer dots per inch."""

_marked: list[object] = []


def is_figure(value: object) -> bool:
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, getattr(module, "Figure", ()))


def mark_shown(figure: object) -> None:
    """It has been shown: the end of the cell does not show it again."""
    if not any(figure is other for other in _marked):
        _marked.append(figure)


def png(figure: Any) -> bytes | None:
    """None for a figure with nothing on it."""
    from io import BytesIO

    if _is_empty(figure):
        return None
    width, height = figure.get_size_inches()
    most = (PIXELS / max(float(width * height), 1e-6)) ** 0.5
    picture = BytesIO()
    dpi = min(float(figure.dpi), most)
    figure.savefig(picture, format="png", dpi=dpi, bbox_inches="tight")
    return picture.getvalue()


def show_open(show: Callable[[object], object] | None) -> None:
    """Show every open figure not shown yet, then close them all. Without `show` they are only closed."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    figs = getattr(getattr(helpers, "Gcf", None), "figs", None)
    try:
        if figs:
            _show_all(list(figs.values()), show)
    except Exception as error:
        sys.stderr.write(f"display: the open figures could not be shown: {type(error).__name__}\n")
    finally:
        _marked.clear()


def _show_all(managers: list[Any], show: Callable[[object], object] | None) -> None:
    try:
        for manager in sorted(managers, key=lambda one: one.num) if show else ():
            figure = manager.canvas.figure
            if show and not any(figure is other for other in _marked) and not _is_empty(figure):
                show(figure)
    finally:
        sys.modules["matplotlib.pyplot"].close("all")


def _is_empty(figure: Any) -> bool:
    return not (figure.axes or figure.lines or figure.texts or figure.images or figure.patches)


def patch_pyplot(pyplot: ModuleType) -> None:
    """`plt.show()` shows."""
    from .displays import display

    def show(*_arguments: object, **_options: object) -> None:
        """Show all open figures."""
        show_open(display)

    vars(pyplot)["show"] = show
