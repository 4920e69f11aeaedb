"""The half marked `test`: whoever tunes an agent opens nothing in this folder."""

from __future__ import annotations

from bench.task_suite.held_out import data, other_tasks

TASKS = (*data.TASKS.all, *other_tasks.TASKS.all)
