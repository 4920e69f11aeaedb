"""The half that may be looked at."""

from __future__ import annotations

from bench.tasking.dev import data, making

TASKS = (*data.TASKS.all, *making.TASKS.all)
