"""Runs a tool's function: in a thread unless it is async, with a time limit, and with its failures told apart."""

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

from pinfold.tools.results import BadCall, Result, ToolFailed, as_result
from pinfold.tools.tool import Tool


async def run(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Result:
    """The tool's result. Raises ToolFailed with a message for the model."""
    foreign = tool.trust == "untrusted"
    with anyio.move_on_after(tool.timeout_s):
        try:
            return as_result(await _await_result(tool.function, arguments))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise  # the call itself was cancelled, not something inside the tool
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
    """Run it in a daemon thread: a call that is given up runs on, but does not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():  # it was not given up meanwhile
            # A pair, because a future cannot carry every exception there is.
            done.set_result((result, error))

    def work() -> None:
        result, raised = None, None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's task
            raised = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
    result, error = await done
    if error is not None:
        raise error
    return result
