"""plotly's figures: their data for a page that can draw them, and a page that can by itself. Never imports plotly."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def is_plot(value: object) -> bool:
    module = sys.modules.get("plotly.basedatatypes")
    return module is not None and isinstance(value, getattr(module, "BaseFigure", ()))


def forms(figure: Any) -> dict[str, bytes]:
    # Its own way to show itself looks for a browser to open.
    return {
        "application/vnd.plotly.v1+json": str(figure.to_json()).encode(),
        "text/html": str(figure.to_html(full_html=False, include_plotlyjs="cdn")).encode(),
    }


def patch_plotly(renderers: ModuleType) -> None:
    """`figure.show()` shows."""
    from .displays import display

    def show(figure: object, *_arguments: object, **_options: object) -> None:
        """Show the figure."""
        display(figure)

    vars(renderers)["show"] = show
