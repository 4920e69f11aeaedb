"""What the zygote does once so that no session has to: import, and run one small job, before it is forked from."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module


def warm() -> None:
    """As far as the libraries are there. Leaves no thread behind."""
    with suppress(ImportError):
        pandas = import_module("pandas")
        frame = pandas.DataFrame({"key": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]})
        repr(frame.groupby("key").agg({"value": ["sum", "mean"]}))
        frame._repr_html_()
