"""Figures of matplotlib as pictures, and of plotly as pages. Imports neither library.

A matplotlib figure is shown once: by `show`, by `display`, as a value, or when its cell ends.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable
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


def is_plot(value: object) -> bool:
    """Whether it is a figure of plotly's."""
    module = sys.modules.get("plotly.basedatatypes")
    return module is not None and isinstance(value, getattr(module, "BaseFigure", ()))


def plot_forms(figure: Any) -> dict[str, bytes]:
    """Its data for a page that can draw it, and a page that can by itself. Its own `show` looks for a browser."""
    return {
        "application/vnd.plotly.v1+json": str(figure.to_json()).encode(),
        "text/html": str(figure.to_html(full_html=False, include_plotlyjs="cdn")).encode(),
    }
