"""Makes the forms of one object: its text, and HTML, pictures or data where it has them. Shows nothing.

Calls the program's code and does not trust what it returns; a form that fails is reported on stderr and left out.
Matplotlib figures become pictures and plotly figures pages; neither library is imported. A matplotlib figure is shown
once: by `show`, by `display`, as a value, or when its cell ends.
"""

from __future__ import annotations

import sys
from binascii import a2b_base64
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

Forms = dict[str, bytes]

METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_json_", "application/json"),
    ("_repr_latex_", "text/latex"),
    ("_repr_javascript_", "application/javascript"),
    ("_repr_pdf_", "application/pdf"),
)
PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
"""Types that have no other form than text."""
SAID_CHARS = 300
TEXT_BYTES = 1 << 20
"""The most bytes of a value's or an error's text that leave the guest."""

BACKEND = "agg"
PIXELS = 12_000_000
"""The most pixels of one picture; a larger figure is drawn with fewer dots per inch."""

_marked: list[object] = []
"""Figures that have been shown: the end of the cell does not show them again."""
_repr = repr
_name_of = type.__dict__["__name__"].__get__


def forms_of(value: object) -> Forms | None:
    """Return all forms, text included; None if the object has displayed itself."""
    own = _method(value, "_ipython_display_")
    if own is not None and not is_plot(value):
        # NotImplementedError means that the object has other forms.
        with _report_failure(value, "_ipython_display_"), suppress(NotImplementedError):
            own()
            return None
    forms = rich_forms(value)
    if "text/plain" not in forms:
        forms = {"text/plain": _text(value), **forms}
    return forms


def rich_forms(value: object) -> Forms:
    """Return the forms other than plain text; empty for most objects."""
    if any(type(value) is kind for kind in PLAIN):
        return {}
    try:
        if _is_of(value, "matplotlib.figure", "Figure"):
            picture = None if _is_empty(value) else _draw(value)
            _marked.append(value)
            return {} if picture is None else {"image/png": picture}
        if is_plot(value):
            return _plot_forms(value)
    except Exception as error:
        _say(value, "drawing", error)
        return {}
    forms = raw_forms(_call_method(value, "_repr_mimebundle_"))
    for method, mime in METHODS:
        if mime in forms or (mime == "image/jpeg" and "image/png" in forms):
            continue
        _put(forms, mime, _call_method(value, method), value)
    return forms


def raw_forms(bundle: object) -> Forms:
    """Return the forms in a bundle of IPython's protocol: data by MIME type, pictures as bytes or in base64."""
    found = _without_metadata(bundle)
    given: Any = found
    forms: Forms = {}
    for mime, data in dict(given).items() if isinstance(found, dict) else ():
        if type(mime) is str:
            _put(forms, mime, data, given)
    return forms


def cap_text(text: str) -> bytes:
    # Through `str`, because a program's `__repr__` may return a subclass with an `encode` of its own.
    if str.__len__(text) > TEXT_BYTES:
        text = str.__getitem__(text, slice(TEXT_BYTES))
    encoded = str.encode(text, "utf-8", "backslashreplace")
    if len(encoded) <= TEXT_BYTES:
        return encoded
    return encoded[:TEXT_BYTES].decode("utf-8", "ignore").encode()


def plain_form(value: object) -> bytes:
    """Return the text of a value. What its `__repr__` raises is raised here."""
    return cap_text(_repr(value))


def _text(value: object) -> bytes:
    with _report_failure(value, "__repr__"):
        return plain_form(value)
    return f"<{_name_of(type(value))}: its text could not be made>".encode()


def _method(value: object, name: str) -> Any:
    # Looked up on the type: an object with a catch-all `__getattr__` does not really have the method.
    return getattr(value, name, None) if hasattr(type(value), name) and not isinstance(value, type) else None


def _call_method(value: object, name: str) -> object:
    with _report_failure(value, name), suppress(NotImplementedError):
        method = _method(value, name)
        return method() if callable(method) else None
    return None


def _put(forms: Forms, mime: str, data: object, value: object) -> None:
    data = _without_metadata(data)
    if data is None:
        return
    with _report_failure(value, mime):
        forms[mime] = _encode_form(mime, data)


def _without_metadata(data: object) -> object:
    pair: Any = data
    return pair[0] if type(data) is tuple and len(pair) == 2 else pair


def _encode_form(mime: str, data: object) -> bytes:
    if isinstance(data, bytes | bytearray):
        return bytes(memoryview(data))
    if mime.endswith("json"):
        return _json(data)
    if not isinstance(data, str):
        raise TypeError(f"{_name_of(type(data))} is not text or bytes")
    text = str.encode(data, "utf-8", "backslashreplace")
    if mime.startswith(("image/", "audio/", "video/", "application/pdf")) and not mime.endswith("xml"):
        return a2b_base64(b"".join(text.split()), strict_mode=True)
    return text


def _json(data: object) -> bytes:
    import json

    if isinstance(data, str):
        try:
            json.loads(data)
        except ValueError:
            return json.dumps(data).encode()
        return str.encode(data, "utf-8", "backslashreplace")
    return json.dumps(data, default=str).encode()


@contextmanager
def _report_failure(value: object, what: str) -> Generator[None]:
    try:
        yield
    except Exception as error:
        _say(value, what, error)


def _say(value: object, what: str, error: Exception) -> None:
    """Write one line to the cell's stderr."""
    try:
        why = str(error)[:SAID_CHARS]
    except Exception:
        why = "no text"
    kind, name = _name_of(type(value)), _name_of(type(error))
    with suppress(Exception):
        sys.stderr.write(f"display: {what} of {kind} failed: {name}: {why}\n")


def is_plot(value: object) -> bool:
    """Return whether a value is a plotly figure."""
    return _is_of(value, "plotly.basedatatypes", "BaseFigure")


def _is_of(value: object, module: str, name: str) -> bool:
    return isinstance(value, getattr(sys.modules.get(module), name, ()))


def _plot_forms(figure: Any) -> Forms:
    """Return a figure's data for a page that can draw it, and a page that draws itself. Its `show` needs a browser."""
    return {
        "application/vnd.plotly.v1+json": str(figure.to_json()).encode(),
        "text/html": str(figure.to_html(full_html=False, include_plotlyjs="cdn")).encode(),
    }


def _draw(figure: Any) -> bytes:
    from io import BytesIO

    width, height = figure.get_size_inches()
    most = (PIXELS / max(float(width * height), 1e-6)) ** 0.5
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=min(float(figure.dpi), most), bbox_inches="tight")
    return picture.getvalue()


def _is_empty(figure: Any) -> bool:
    return not (figure.axes or figure.lines or figure.texts or figure.images or figure.patches)


def show_figures(show: Callable[[object], object] | None) -> None:
    """Show every open figure not shown yet, then close them all. Without `show` they are only closed."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    managers: dict[object, Any] = getattr(getattr(helpers, "Gcf", None), "figs", None) or {}
    try:
        for manager in sorted(managers.values(), key=lambda one: one.num) if show else ():
            figure = manager.canvas.figure
            if show and not any(figure is other for other in _marked) and not _is_empty(figure):
                show(figure)
    except Exception as error:
        sys.stderr.write(f"display: the open figures could not be shown: {type(error).__name__}\n")
    finally:
        _marked.clear()
        if managers:
            sys.modules["matplotlib.pyplot"].close("all")
