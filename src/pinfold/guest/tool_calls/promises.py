"""What a call gives inside an event loop: awaited, it is the result; used as it is, it waits and is the result too."""

from __future__ import annotations

import asyncio
import operator

from ..calls import Calls

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

_listening: dict[asyncio.AbstractEventLoop, int] = {}
"""How many wait in each loop."""


class Promise:
    """The call goes out when this is made, so several run side by side."""

    __slots__ = ("_calls", "_futures", "_slot")

    def __init__(self, calls: Calls, tool: str, args: dict[str, object]) -> None:
        self._calls = calls
        self._futures: list[asyncio.Future[None]] = []
        self._slot = calls.begin(tool, args, self._on_answer)

    def __await__(self) -> Generator[Any, None, Any]:
        if self._slot.answer is None:
            yield from self._wait().__await__()
        return self._value()

    def _value(self) -> Any:
        return self._calls.result(self._slot)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._futures.append(future)
        _listen(loop, self._calls, 1)
        try:
            await future
        except asyncio.CancelledError:
            self._calls.drop(self._slot)
            raise
        finally:
            _listen(loop, self._calls, -1)

    def _on_answer(self) -> None:
        """In whichever thread it is."""
        for future in self._futures:
            try:
                future.get_loop().call_soon_threadsafe(_resolve, future)
            except RuntimeError:  # its loop is over
                continue


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _listen(loop: asyncio.AbstractEventLoop, calls: Calls, more: int) -> None:
    before = _listening.get(loop, 0)
    _listening[loop] = before + more
    if not before:
        loop.add_reader(calls.fd, calls.receive_pending)
        calls.receive_pending()  # what came while nobody listened
    elif not _listening[loop]:
        del _listening[loop]
        loop.remove_reader(calls.fd)


def _make_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """As the operator on the value."""

    def operate(self: Any, *more: Any, **named: Any) -> Any:
        return function(self._value(), *more, **named)

    return operate


def _make_reflected_operator(function: Callable[..., Any]) -> Callable[..., Any]:

    def operate(self: Any, other: Any) -> Any:
        return function(other, self._value())

    return operate


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_", "xor")
_USED: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "index")},
    **{f"__{name}__": getattr(operator, name) for name in ("getitem", "setitem", "delitem", "contains")},
    "__getattr__": getattr,
    "__call__": operator.call,
    **{f"__{kind.__name__}__": kind for kind in (str, repr, bytes, bool, int, float, complex, len, iter, abs, round)},
    "__format__": format,
    "__reversed__": reversed,
    "__dir__": dir,
}
for _name, _function in _USED.items():
    setattr(Promise, _name, _make_operator(_function))
for _name in _BINARY:
    _plain = _name.rstrip("_")
    setattr(Promise, f"__{_plain}__", _make_operator(getattr(operator, _name)))
    setattr(Promise, f"__r{_plain}__", _make_reflected_operator(getattr(operator, _name)))
Promise.__hash__ = object.__hash__  # `gather` counts them by it, before there is a value
