"""The half marked `test`: whoever tunes an agent opens nothing in this folder."""

from __future__ import annotations

from bench.tasking.held_out import data, making

TASKS = (*data.TASKS.all, *making.TASKS.all)
