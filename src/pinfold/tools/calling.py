"""Runs a tool's function: beside the event loop if it would block it, bounded in time, its failures told apart."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from pinfold.tools.errors import BadCall, ToolFailed
from pinfold.tools.results import Result, as_result
from pinfold.tools.tool import Tool


async def run(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Result:
    """What it gives, or ToolFailed with words for the model."""
    foreign = tool.trust == "untrusted"
    with anyio.move_on_after(tool.timeout_s):
        try:
            return as_result(await _returned(tool.function, arguments))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise  # it is we who were cancelled, and not something of the tool's own
            raise ToolFailed(f"{tool.name} failed: it cancelled itself", at_fault=True) from error
        except ToolFailed:
            raise  # the tool knows best what became of its call
        except BadCall as error:
            raise ToolFailed(f"{tool.name} failed: {error}", untrusted=foreign, sent=error.sent) from error
        except (
            Exception,
            SystemExit,
            GeneratorExit,
        ) as error:  # none of these may take the agent with it
            words = f"{tool.name} failed: {type(error).__name__}: {error}"
            raise ToolFailed(words, at_fault=True, untrusted=foreign) from error
    words = f"{tool.name} took longer than {tool.timeout_s:g} s and was given up"
    raise ToolFailed(words, at_fault=True, may_have_happened=True)


async def _returned(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    returned = await _in_thread(partial(function, **arguments))
    # A callable object may be async without saying so.
    return await returned if inspect.isawaitable(returned) else returned


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run it beside the event loop. A call that is given up goes on, but does not keep the process alive."""
    loop = asyncio.get_running_loop()
    # The error as a value: a future cannot carry every exception there is.
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
        if not future.done():  # else it was given up meanwhile
            future.set_result((result, error))

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 - delivered to whoever waits
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), daemon=True).start()
    result, error = await future
    if error is not None:
        raise error
    return result
