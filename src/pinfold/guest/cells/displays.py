"""Collects what a cell displays besides its text, in order and bounded, to be sent with the reply."""

from __future__ import annotations

import builtins
import os
import re
import sys
import threading

from .mime_bundle import Forms, forms_of, raw_forms

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

DISPLAYS = 64
"""The most displays of one cell; the rest come as text. The host refuses a guest that sends more."""
FORMS = 8
"""The most representations of one display."""
DISPLAY_BYTES = 32 << 20
"""The most bytes of all displays of one cell."""
MIME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,80}/[a-z0-9][a-z0-9.+-]{0,80}\Z")

_getpid = os.getpid


class Displays:
    """The displays of the running cell. One made between cells belongs to the next cell, as output does."""

    def __init__(self) -> None:
        self._shown: list[tuple[str | None, Forms]] = []
        self._bytes = 0
        self._clears_next = False
        self._said = False
        self.pid = _getpid()
        self._lock = threading.Lock()
        # A thread that does not exist in a forked child may have held the lock.
        os.register_at_fork(after_in_child=lambda: setattr(self, "_lock", threading.Lock()))
        self.captured: Callable[[Forms], bool] | None = None
        """Takes displays instead while `%%capture` runs; returns whether it took this one."""

    def add(self, forms: Forms, name: str | None = None, *, update: bool = False, told: bool = False) -> None:
        """Add a display. With `update` it replaces the display of the same `name`.

        `told`: its text comes with the reply in any case.
        """
        if self.captured is not None and self.captured(forms):
            return
        if _getpid() != self.pid:
            _print(forms)  # the displays of a child are not collected
            return
        forms = _sendable(forms)
        with self._lock:
            fits = self._put(forms, name, update)
            said, self._said = self._said, self._said or not fits
        if not (fits or said):
            limits = f"{DISPLAYS} displays, {DISPLAY_BYTES >> 20} MB"
            text = f"more was displayed than a cell may ({limits}): the rest comes as text\n"
            try:
                sys.stderr.write(text)
            except Exception:
                os.write(2, text.encode())
        if not (fits or told):
            _print(forms)

    def clear(self, *, wait: bool) -> None:
        """Forget the displays so far, now or (`wait`) when the next one comes. Printed text is already out."""
        with self._lock:
            if wait:
                self._clears_next = True
            else:
                self._empty()

    def take(self) -> list[Forms]:
        with self._lock:
            taken = [forms for _, forms in self._shown]
            self._empty()
            self._clears_next = self._said = False
        return taken

    def _put(self, forms: Forms, name: str | None, update: bool) -> bool:
        if self._clears_next:
            self._empty()
            self._clears_next = False
        size = sum(map(len, forms.values()))
        if update and name is not None:
            for place, (other, old) in enumerate(self._shown):
                if other == name:
                    grown = self._bytes + size - sum(map(len, old.values()))
                    if grown > DISPLAY_BYTES:
                        return False
                    self._shown[place], self._bytes = (name, forms), grown
                    return True
        if not forms or len(self._shown) == DISPLAYS or self._bytes + size > DISPLAY_BYTES:
            return not forms
        self._shown.append((name, forms))
        self._bytes += size
        return True

    def _empty(self) -> None:
        self._shown = []
        self._bytes = 0


_current: Displays | None = None


def install(displays: Displays) -> None:
    """Make `display` add to these displays, wherever it is called."""
    global _current
    _current = displays
    builtins.__dict__["display"] = display


class DisplayHandle:
    """What `display(..., display_id=...)` returns: shows something else in the same place."""

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = display_id or os.urandom(16).hex()

    def display(self, obj: object, **options: object) -> None:
        display(obj, display_id=self.display_id, **options)

    def update(self, obj: object, **options: object) -> None:
        update_display(obj, display_id=self.display_id, **options)


def display(*objs: object, display_id: str | bool | None = None, **options: Any) -> DisplayHandle | None:
    """Show objects in their richest forms. Takes what IPython's takes: raw, clear, include, exclude, update."""
    transient: dict[str, str] = options.get("transient") or {}
    name = transient.get("display_id") or display_id
    handle = DisplayHandle(None if name is True else str(name)) if name else None
    if options.get("clear"):
        clear_output(wait=True)
    for value in objs:
        forms = raw_forms(value) if options.get("raw") else forms_of(value)
        if forms is None:
            continue  # the object has displayed itself
        include, exclude = options.get("include"), options.get("exclude") or ()
        forms = {mime: data for mime, data in forms.items() if mime in (include or forms) and mime not in exclude}
        if _current is None:
            _print(forms)
        else:
            _current.add(forms, handle.display_id if handle else None, update=bool(options.get("update")))
    return handle


def update_display(obj: object, *, display_id: str, **options: object) -> None:
    display(obj, display_id=display_id, **{**options, "update": True})


def publish_display_data(data: object, _metadata: object = None, **options: Any) -> None:
    display(data, raw=True, **options)


def clear_output(wait: bool = False) -> None:
    if _current is not None:
        _current.clear(wait=wait)


def patch_ipython(_module: ModuleType | None = None) -> None:
    """Replace IPython's functions by these: IPython's only print where there is no notebook."""
    for place in ("IPython.core.display_functions", "IPython.core.display", "IPython.display"):
        names = vars(sys.modules[place]) if place in sys.modules else {}
        for function in (display, update_display, publish_display_data, clear_output, DisplayHandle):
            if function.__name__ in names:
                names[function.__name__] = function


def _sendable(forms: Forms) -> Forms:
    """Keep only what the host accepts: the program's code may have put anything in."""
    kept = [(mime, data) for mime, data in forms.items() if type(mime) is str and MIME.match(mime)]
    return dict([(mime, data) for mime, data in kept if type(data) is bytes][:FORMS])


def _print(forms: Forms) -> None:
    text = forms.get("text/plain")
    if text is None:
        text = f"[{', '.join(forms)}]".encode()
    sys.stdout.write(text.decode("utf-8", "replace") + "\n")
