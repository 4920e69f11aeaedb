"""A task group that fails like a function: with the error itself where there is just one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background() -> AsyncGenerator[TaskGroup]:
    """Tasks that run beside the body and are cancelled at its end."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        errors = _leaves(group)
        if len(errors) == 1:
            raise errors[0]  # noqa: B904 - it keeps its own cause
        raise


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            leaves += _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            leaves.append(error)
    return leaves
