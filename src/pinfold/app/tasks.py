"""Tasks beside other code: a group of them that fails like a function, and an event loop in a thread of its own."""

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
"""For what is cancelled to end."""


@asynccontextmanager
async def background() -> AsyncGenerator[TaskGroup]:
    """Tasks that run beside the body and are cancelled at its end. Fails with the error itself where there is just one."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _only_error(group)  # noqa: B904 - it keeps its own cause


def _only_error(error: BaseException) -> BaseException:
    """The one in a group, however deep; else the group."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _only_error(group.exceptions[0]) if len(group.exceptions) == 1 else group


class LoopThread:
    """An event loop in a thread of its own, for code without asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # No reason to keep a program alive whose own code has ended.
        self._thread = threading.Thread(target=self._loop.run_forever, name="pinfold", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the code that asks runs in it."""
        return threading.current_thread() is self._thread

    def call(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ctrl-C cancels the step, and is raised when it has ended."""
        ended = threading.Event()

        async def run() -> T:
            try:
                return await step()
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            return future.result()
        except PinfoldError as error:  # whose words say all: what led to it here is of no use to the caller
            raise error.with_traceback(None) from None
        finally:
            if future.cancel():  # it has not ended yet
                ended.wait(_STOP_S)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
