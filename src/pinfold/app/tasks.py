"""Concurrent tasks: a task group that raises a single error as it is, and an event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from pinfold.events import PinfoldError

T = TypeVar("T")
_STOP_S = 10.0
"""How long a cancelled call may take to end."""


@asynccontextmanager
async def background() -> AsyncGenerator[TaskGroup]:
    """Run tasks concurrently with the body; cancel them at its end. A single error is raised without its group."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _only_error(group)  # noqa: B904 - it keeps its own cause


def _only_error(error: BaseException) -> BaseException:
    """Return the only error in nested groups, or the first group that has several."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _only_error(group.exceptions[0]) if len(group.exceptions) == 1 else group


class LoopThread:
    """An event loop in a thread of its own, for code without asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon thread, so that it does not keep a finished program alive.
        self._thread = threading.Thread(target=self._loop.run_forever, name="pinfold", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """True if the calling code runs in this thread."""
        return threading.current_thread() is self._thread

    def call(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop and wait for it. Ctrl-C cancels it, and is raised once it has ended."""
        ended = threading.Event()

        async def run() -> T:
            try:
                return await step()
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            return future.result()
        except PinfoldError as error:  # its message says all; frames of the loop do not help the caller
            raise error.with_traceback(None) from None
        finally:
            if future.cancel():  # it had not ended yet
                ended.wait(_STOP_S)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
