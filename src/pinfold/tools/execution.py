"""Runs a tool's function: beside the event loop if it would block it, bounded in time, its failures told apart."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import anyio

from pinfold.tools.errors import BadCall, ToolFailed
from pinfold.tools.results import Result, as_result
from pinfold.tools.tool import Tool

QUICK_S = 0.0002
"""A function as quick as this is waited for on the spot: it ends sooner than the event loop would go round."""


async def run(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Result:
    """What it gives, or ToolFailed with words for the model."""
    foreign = tool.trust == "untrusted"
    with anyio.move_on_after(tool.timeout_s):
        try:
            return as_result(await _await_result(tool.function, arguments))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise  # it is we who were cancelled, and not something of the tool's own
            raise ToolFailed(f"{tool.name} failed: it cancelled itself", at_fault=True) from error
        except BadCall as error:
            raise ToolFailed(
                f"{tool.name} failed: {error}",
                at_fault=error.at_fault,
                may_have_happened=error.may_have_happened,
                untrusted=foreign,
                sent=error.sent,
            ) from error
        except (Exception, SystemExit, GeneratorExit) as error:  # none of these may take the agent with it
            words = f"{tool.name} failed: {type(error).__name__}: {error}"
            raise ToolFailed(words, at_fault=True, untrusted=foreign) from error
    words = f"{tool.name} took longer than {tool.timeout_s:g} s and was given up"
    raise ToolFailed(words, at_fault=True, may_have_happened=True)


async def _await_result(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    returned = await _in_thread(partial(function, **arguments))
    # A callable object may be async without saying so.
    return await returned if inspect.isawaitable(returned) else returned


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run it beside the event loop. A call that is given up goes on, but does not keep the process alive."""
    errand = _Errand(partial(contextvars.copy_context().run, call))
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.work.put(errand)
    if not errand.is_done.acquire(timeout=QUICK_S):
        loop = asyncio.get_running_loop()
        errand.waiter = loop, loop.create_future()
        if not errand.is_done.acquire(blocking=False):  # it might have ended before it knew that somebody waits
            await errand.waiter[1]
    if errand.error is not None:
        raise errand.error
    return errand.result


class _Errand:
    """A call in a thread. Its error is a value: a future cannot carry every exception there is."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.is_done = threading.Lock()
        self.is_done.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        self.waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as raised:  # noqa: BLE001 - for whoever waits
            self.error = raised
        self.is_done.release()
        if self.waiter is not None:
            loop, future = self.waiter
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():  # else it was given up meanwhile
        future.set_result(None)


class _Worker:
    """A thread that does one thing after the other; one that has had nothing to do for a while ends."""

    IDLE_S = 10.0

    def __init__(self) -> None:
        self.work: SimpleQueue[_Errand] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                errand = self.work.get(timeout=self.IDLE_S)
            except Empty:
                with suppress(ValueError):  # somebody has just taken it
                    _idle.remove(self)
                    return
                continue
            errand.run()
            del errand  # and what it holds
            _idle.append(self)


_idle: list[_Worker] = []
