"""The package `servers`: the tools of this session as modules and functions, made by the host when they are imported.

A package `servers` of the program's own takes precedence, and so does each module in it.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec

from . import agents
from .calls import NO_ANSWERS, current, is_possible
from .tool_calls.slots import ToolError, ToolRefused

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Generator, Sequence
    from types import ModuleType
    from typing import Any

    from .calls import Calls

NAME = "servers"
AGENTS = "agents"
ASK = "servers"
"""A call that the host answers itself; no tool has this name."""
SHOWN = "/mnt/servers/"
"""Where the host also provides the modules as files."""
DOC = """The tools of this session. `from servers.NAME import tool`, then call it, or await it; `help(tool)` says how.

search("words") finds tools; dir(servers) names the servers.
"""


class _Omitted:
    def __repr__(self) -> str:
        return "..."


OMITTED = _Omitted()
"""The value of an argument to leave out of the call."""


def call(tool: str, args: dict[str, object]) -> Any:
    """Call a tool and return its result; inside a running event loop, an awaitable of it."""
    given = {name: value for name, value in args.items() if value is not OMITTED}
    events = sys.modules.get("_asyncio")
    if events is None or events._get_running_loop() is None:  # noqa: SLF001 - the public one raises
        return current().call(tool, given)
    return PendingCall(current(), tool, given)


class PendingCall:
    """A call made inside an event loop. It is sent at once, so several run concurrently; `await` gives the result."""

    __slots__ = ("_calls", "_futures", "_slot", "_tool")

    def __init__(self, calls: Calls, tool: str, args: dict[str, object]) -> None:
        self._calls = calls
        self._tool = tool
        self._futures: list[Future[None]] = []
        self._slot = calls.begin(tool, args, self._on_answer)

    def __await__(self) -> Generator[Any, None, Any]:
        if self._slot.answer is None:
            yield from self._wait().__await__()
        return self._calls.result(self._slot)

    async def _wait(self) -> None:
        from asyncio import CancelledError, get_running_loop

        loop = get_running_loop()
        future = loop.create_future()
        self._futures.append(future)
        try:
            _listen(loop, self._calls, future)
            await future
        except CancelledError:
            self._calls.drop(self._slot)
            raise
        finally:
            _end_listening(loop, self._calls, future)

    def _on_answer(self) -> None:
        """Resolve the futures. Runs in the thread that received the answer."""
        for future in self._futures:
            with suppress(RuntimeError):  # its loop is closed
                future.get_loop().call_soon_threadsafe(_resolve, future)

    def __repr__(self) -> str:
        return f"<call of {self._tool}, not awaited: write `await` before it to get the result>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self!r} has no {name!r}")

    def _refuse(self, *_: object) -> Any:
        raise TypeError(f"{self!r} cannot be used as its result")

    __str__ = __len__ = __bool__ = __iter__ = __contains__ = __getitem__ = __eq__ = __lt__ = __gt__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __hash__ = object.__hash__  # `asyncio.gather` needs it


_awaited: dict[AbstractEventLoop, set[Future[None]]] = {}
"""The calls that are awaited in each loop."""


def _resolve(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _listen(loop: AbstractEventLoop, calls: Calls, future: Future[None]) -> None:
    """Have the loop receive answers. An interrupt may cut this anywhere; the next call in the loop then repairs it."""
    awaited = _awaited.setdefault(loop, set())
    is_first = not awaited
    awaited.add(future)
    loop.add_reader(calls.channel.fd, calls.receive_pending)
    if is_first:
        calls.receive_pending()  # answers that came before the loop listened


def _end_listening(loop: AbstractEventLoop, calls: Calls, future: Future[None]) -> None:
    awaited = _awaited.get(loop, set())
    awaited.discard(future)
    if not awaited:
        loop.remove_reader(calls.channel.fd)
        _awaited.pop(loop, None)


class Found(list[str]):
    """The results of a search, shown one per line."""

    def __repr__(self) -> str:
        return "\n".join(self)

    __str__ = __repr__


def search(words: str = "", limit: int = 8) -> Found:
    """Tools for `words`, best first, each with how to call it."""
    return Found(_ask_host(search=words, limit=limit))


def _ask_host(**args: object) -> Any:
    return current().call(ASK, args)


class _Finder:
    """Finds only `servers` with the modules the host makes for it, and `agents`."""

    def find_spec(self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in (NAME, AGENTS) and not name.startswith("servers."):
            return None
        from importlib.machinery import PathFinder

        own = PathFinder.find_spec(name, path)
        if name in (AGENTS, f"{NAME}.{AGENTS}"):
            return None if own is not None and not str(own.origin).startswith(SHOWN) else _spec(name, _fill_agents)
        if own is not None and own.loader is not None and own.origin is not None:
            if not own.origin.startswith(SHOWN):  # else the host's own file: the host knows the current tools
                return None
        elif name == NAME:
            spec = _spec(name, _fill_package, is_package=True)
            spec.submodule_search_locations = list(own.submodule_search_locations or ()) if own else []
            return spec
        return _spec(name, _fill_server) if name.count(".") <= 1 else None


class _Loader:
    def __init__(self, fill: Callable[[ModuleType], None]) -> None:
        self.exec_module = fill

    def create_module(self, _spec: ModuleSpec) -> None: ...


def _spec(name: str, fill: Callable[[ModuleType], None], *, is_package: bool = False) -> ModuleSpec:
    loader: Any = _Loader(fill)
    return ModuleSpec(name, loader, origin="Pinfold", is_package=is_package)


def _fill_agents(module: ModuleType) -> None:
    """Fill the module `agents` without asking the host."""
    module.__dict__.update({"run": agents.run, "gather": agents.gather, "__doc__": agents.__doc__})


def _fill_package(module: ModuleType) -> None:
    module.__doc__ = DOC
    own = {"search": search, "__dir__": _names, "__getattr__": _server, "__all__": ["search"]}
    module.__dict__.update(own)


def _names() -> list[str]:
    return sorted({"search", *(_ask_host() if is_possible() else ())})


def _server(name: str) -> ModuleType:
    """Import a server when code uses `servers.NAME` without importing it."""
    if name.startswith("__"):
        raise AttributeError(name)
    from importlib import import_module

    try:
        return import_module(f"{NAME}.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(str(error)) from None


def _fill_server(module: ModuleType) -> None:
    name = module.__name__.partition(".")[2]
    if not is_possible():
        # Saved state is restored between cells, when the host answers no calls: fill the module on first use.
        module.__dict__["__getattr__"] = partial(_make_lazy_tool, module)
        return
    module.__dict__.pop("__getattr__", None)
    try:
        source = _ask_host(module=name)
    except ToolError as error:
        raise ModuleNotFoundError(str(error), name=module.__name__) from None
    import linecache

    filename = f"<{module.__name__}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)


def _make_lazy_tool(module: ModuleType, tool: str) -> Any:
    if tool.startswith("__"):
        raise AttributeError(tool)

    def late(*args: object, **named: object) -> Any:
        from importlib import reload

        if not is_possible():
            raise ToolRefused(NO_ANSWERS)
        return getattr(reload(module), tool)(*args, **named)

    late.__name__ = late.__qualname__ = tool
    late.__module__ = module.__name__
    return late


def install() -> None:
    sys.meta_path.insert(0, _Finder())
