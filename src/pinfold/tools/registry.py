"""Every tool of a session by name: told to the model, called with checked arguments. Judges nothing."""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import inspect
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from pinfold.events import Action, CallTool, Json, RunCell, ToolSchema
from pinfold.tools.errors import BadCall, BadTool, ToolFailed
from pinfold.tools.tool import Tool

PYTHON = ToolSchema(
    name="python",
    description=(
        "Run Python in the session's interpreter. Variables, imports and files stay for later calls. "
        "You see what the code prints, the value of its last expression, and errors."
    ),
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
        "additionalProperties": False,
    },
)


class Registry:
    def __init__(self, tools: Iterable[Tool[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool[..., Any]] = {}
        for tool in tools:
            if tool.name in self._tools or tool.name == PYTHON.name:
                raise BadTool(f"two tools are called {tool.name!r}; give one another name")
            self._tools[tool.name] = tool

    def schemas(self) -> tuple[ToolSchema, ...]:
        return PYTHON, *(tool.schema for tool in self._tools.values())

    def get(self, name: str) -> Tool[..., Any] | None:
        return self._tools.get(name)

    def action(self, tool: str, args: Json) -> Action:
        """What a call proposes. A call that makes no sense stays a call: it fails when it is run, and says why."""
        match tool, args:
            case PYTHON.name, {"code": str(code), **rest} if not rest:
                return RunCell(code=code)
            case _:
                return CallTool(tool=tool, args=args)

    async def call(self, name: str, args: Json) -> str:
        """The tool's result as text, or ToolFailed with words for the model."""
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFailed(self._no_such(name))
        arguments = tool.checked(args)
        with anyio.move_on_after(tool.timeout_s):
            try:
                if inspect.iscoroutinefunction(tool.function):
                    result = await tool.function(**arguments)
                else:
                    result = await _in_thread(partial(tool.function, **arguments))
                return _as_text(result)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task and task.cancelling():
                    raise  # it is we who were cancelled, and not something of the tool's own
                raise ToolFailed(f"{name} failed: it cancelled itself", at_fault=True) from error
            except BadCall as error:
                raise ToolFailed(f"{name} failed: {error}") from error
            except (
                Exception,
                SystemExit,
                GeneratorExit,
            ) as error:  # none of these may take the agent with it
                raise ToolFailed(f"{name} failed: {type(error).__name__}: {error}", at_fault=True) from error
        words = f"{name} took longer than {tool.timeout_s:g} s and was given up"
        raise ToolFailed(words, at_fault=True, may_have_happened=True)

    def _no_such(self, name: str) -> str:
        if name == PYTHON.name:
            return 'wrong arguments for python: it takes {"code": "..."} and nothing else'
        known = [PYTHON.name, *self._tools]
        near = difflib.get_close_matches(name, known, n=1)
        return f"no tool is called {name!r}; " + (
            f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        )


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


def _as_text(result: object) -> str:
    if isinstance(result, str):
        return result
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(result, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, ValueError):
        return repr(result)
