"""Typed Python functions as tools. Schema and checks come from signature and docstring."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast, get_type_hints, overload

import anyio
from msgspec import Struct

from pinfold.events import Effect, Json, Reach, ToolSchema
from pinfold.tools.arguments import (
    Argument,
    Hint,
    check_arguments,
    describe_function,
    model_of,
    read_signature,
    schema_of,
    schema_of_result,
)
from pinfold.tools.results import BadCall, BadTool, Result, ToolFailed, as_result

if TYPE_CHECKING:
    import pydantic


P = ParamSpec("P")
R = TypeVar("R")

Trust: TypeAlias = Literal["trusted", "untrusted"]
"""`untrusted`: a tool's results may hold text that the user did not write."""
TIMEOUT_S = 60.0
MAX_OUTPUT = 10_000
"""Characters of one result that the model sees."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Tool(Struct, Generic[P, R], frozen=True, dict=True):
    """A tool; calling it calls the function it was made from."""

    function: Callable[P, R]
    name: str
    description: str
    effect: Effect
    timeout_s: float = TIMEOUT_S
    parallel_safe: bool = False
    parameters: Mapping[str, Json] | None = None
    """The schema of its arguments; None to derive it from the signature."""
    reach: Reach = "outside"
    trust: Trust = "trusted"
    max_output: int = MAX_OUTPUT
    cache: bool = False
    """The same arguments always give the same result, so a repeated call in a session is answered from the cache."""
    aliases: Mapping[str, str] | None = None
    """Other accepted names of arguments, mapped to the tool's own."""
    takes: tuple[Argument, ...] | None = None
    """Its arguments; None to derive them from the signature."""
    server: str = "tools"
    """The module of `servers` from which code imports it."""
    returns: Mapping[str, Json] | None = None
    """The schema of its result, if known."""
    goes: Callable[[Mapping[str, Json]], tuple[Reach, str]] | None = None
    """Returns the reach of a call and its target (a path, `host:port`), if they depend on the arguments."""
    validate: Callable[[Json], Mapping[str, Any]] | None = None
    """Replaces the signature's checks if a server wrote the schema. Returns the arguments, or raises ToolFailed."""
    summary: str = ""
    """If set, shown to the model instead of the description, which costs tokens in every request."""
    untold: tuple[str, ...] = ()
    """Omitted from the schema the model sees: arguments that error messages name when they matter, and obvious
    properties of others (`where.default`)."""
    held: str = ""
    """How the tool differs from what the user agreed to; if set, each call needs approval."""

    def __post_init__(self) -> None:
        if self.cache and self.effect != "pure":
            fix = "drop cache=True or say effect='pure'"
            raise BadTool(f"{self.name} has effects ({self.effect}) and cannot be cached; {fix}")
        if not self.timeout_s > 0:
            raise BadTool(f"{self.name}: timeout_s must be more than 0, not {self.timeout_s!r}")
        if self.max_output < 1:
            raise BadTool(f"{self.name}: max_output must be at least 1, not {self.max_output!r}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        if self.takes is not None:
            return self.takes
        return read_signature(self.function, self.name, describe_function(self.function))

    @cached_property
    def schema(self) -> ToolSchema:
        parameters = self.parameters
        if parameters is None:
            parameters = schema_of(self.arguments, lambda: self._model)
        return ToolSchema(name=self.name, description=self.description, parameters=parameters)

    def reach_of(self, args: Json) -> tuple[Reach, str]:
        """Return a call's reach, and its target if known. Never raises: wrong arguments fail when the call runs."""
        if self.goes is None or not isinstance(args, Mapping):
            return self.reach, ""
        return self.goes(cast("Mapping[str, Json]", args))

    def check_arguments(self, args: Json) -> Mapping[str, Any]:
        """Return the arguments converted for the function. Raises ToolFailed with exactly what to fix."""
        if self.validate is not None:
            return self.validate(args)
        return check_arguments(self.name, self._model, self.arguments, args)

    @cached_property
    def _model(self) -> type[pydantic.BaseModel]:
        # Importing pydantic takes 0.1 s: only when a tool is called.
        hints: Mapping[str, Hint] = {}
        if any(isinstance(argument.hint, str) for argument in self.arguments):
            try:
                hints = get_type_hints(self.function, include_extras=True)
            except (NameError, SyntaxError, TypeError, AttributeError) as error:
                raise BadTool(f"{self.name} cannot be a tool: its types cannot be read: {error}") from error
        return model_of(self.name, self.arguments, hints)


AnyTool: TypeAlias = Tool[..., Any]


class Loaded(Struct, frozen=True):
    tools: tuple[AnyTool, ...]
    faults: tuple[str, ...]
    """One line for each file or entry point that could not be loaded."""


@overload
def tool(function: Callable[P, R]) -> Tool[P, R]: ...
@overload
def tool(
    *,
    effect: Effect = "once",
    name: str | None = None,
    reach: Reach = "outside",
    trust: Trust = "trusted",
    timeout_s: float = TIMEOUT_S,
    max_output: int = MAX_OUTPUT,
    parallel_safe: bool | None = None,
    cache: bool = False,
    aliases: Mapping[str, str] | None = None,
    server: str = "tools",
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, *, effect: Effect = "once", name: str | None = None, **options: Any
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a function a tool: `@tool` or `@tool(effect="pure")`.

    `effect` says whether a call may be repeated: `pure` freely, `keyed` under the same key, `once` never.
    `trust="untrusted"`: its results may hold text that the user did not write, as a page or a mail does.
    `server`: code finds it as `servers.SERVER.NAME`.
    Only `pure` tools run side by side unless `parallel_safe` says otherwise, and only they may be cached.
    """

    if options.get("parallel_safe") is None:
        options["parallel_safe"] = effect == "pure"

    def make(function: Callable[P, R]) -> Tool[P, R]:
        title = name or getattr(function, "__name__", "")
        if not _NAME.fullmatch(title):
            raise BadTool(f"{title!r} cannot be a tool's name: use letters, digits and underscores")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadTool(f"{title} cannot be a tool: it yields; return a list instead")
        made = Tool(
            function=function,
            name=title,
            description=describe_function(function).text,
            effect=effect,
            returns=schema_of_result(function, title),
            **options,
        )
        if not any(isinstance(argument.hint, str) for argument in made.arguments):
            _ = made.schema  # a type without a JSON schema is refused here, where its author sees it
        return made

    return make if function is None else make(function)


def as_tool(given: Callable[..., object]) -> AnyTool:
    """Return a tool unchanged; make a plain function a tool with the defaults of `@tool`."""
    return cast("AnyTool", given) if isinstance(given, Tool) else tool(given)


async def run(tool: AnyTool, arguments: Mapping[str, Any]) -> Result:
    """Call a tool and return its result. Raises ToolFailed with a message for the model."""
    foreign = tool.trust == "untrusted"
    with anyio.move_on_after(tool.timeout_s):
        try:
            call = partial(tool.function, **arguments)
            returned = call() if inspect.iscoroutinefunction(tool.function) else await _in_thread(call)
            # A callable object may be async although `iscoroutinefunction` says no.
            return as_result(await returned if inspect.isawaitable(returned) else returned)
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
        except (Exception, SystemExit, GeneratorExit) as error:  # none of these may end the agent
            words = f"{tool.name} failed: {type(error).__name__}: {error}"
            raise ToolFailed(words, at_fault=True, untrusted=foreign) from error
    words = f"{tool.name} took longer than {tool.timeout_s:g} s and was given up"
    raise ToolFailed(words, at_fault=True, may_have_happened=True)


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run a call in a daemon thread: after a timeout it runs on, but does not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():  # the caller has not given up meanwhile
            # A pair, because a future does not accept every exception (StopIteration).
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
