"""How many inotify instances there may be: the kernel counts them for the user outside too, who has but 128."""

from __future__ import annotations

from contextlib import suppress

from .proc import put

OF_ALL = 64
OF_ONE = 16


def bound_watches(most: int) -> None:
    """In this user namespace and those below it. Needs power over it, and a /proc/sys that may be written."""
    with suppress(FileNotFoundError):  # a kernel without them
        put("/proc/sys/user/max_inotify_instances", str(most))
