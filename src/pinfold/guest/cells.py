"""Runs cells: compile, execute, show the last value, explain what went wrong. No frames, no files."""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from types import CodeType, ModuleType, TracebackType

from .interrupts import Interrupts
from .streams import Streams

TEXT_BYTES = 1 << 20
"""Most of a value's text, and of an error's, that leaves the guest."""
CO_COROUTINE = 0x80
FUTURE_FLAGS = 0x1FE0000
"""The bits of a code object that `from __future__` sets; one cell's hold for the next, as at a prompt."""
VALUE = "<value>"
"""Where a cell leaves its last value for us: not a name the program could write."""
OUR_FOLDER = __file__.rpartition("/")[0] + "/"

# Bound now: a program may replace these names in their modules, and we still have to answer.
_compile, _eval, _repr, _getpid = compile, eval, repr, os.getpid
_format_exception = traceback.format_exception


class Result:
    """How a cell ended: texts already encoded and capped."""

    __slots__ = ("error", "interrupted", "status", "value")

    def __init__(self, status: str, value: bytes | None, error: bytes | None, interrupted: bool) -> None:
        self.status = status
        self.value = value
        self.error = error
        self.interrupted = interrupted


class Engine:
    """One namespace, one counter, one event loop for top-level `await`."""

    def __init__(self, interrupts: Interrupts, streams: Streams) -> None:
        main = ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        self.namespace: dict[str, object] = main.__dict__
        self._interrupts = interrupts
        self._streams = streams
        self._count = 0
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._pid = _getpid()
        self._loop: object = None

    def run(self, source: str) -> Result:
        self._count += 1
        filename = f"<cell {self._count}>"
        self._interrupts.begin()
        self._streams.prepare()
        value: bytes | None = None
        error: bytes | None = None
        try:
            try:
                self._interrupts.arm_cell()
                value = self._shown(self._execute(source, filename))
            finally:
                self._interrupts.disarm()
        except BaseException as raised:
            error = self._explained(raised)
            if _getpid() != self._pid:
                self._leave_child(raised, error)
        self._settle()
        if _getpid() != self._pid:
            self._leave_child(None, b"")
        interrupted = self._interrupts.fired
        status = "ok" if error is None else "interrupted" if interrupted else "error"
        return Result(status, value, error, interrupted)

    def rehearse(self) -> None:
        """Run a cell that does nothing, and forget it."""
        self.run("None")
        linecache.cache.pop("<cell 1>", None)
        self._count = 0

    def idle(self, wait: Callable[[], None]) -> None:
        """Wait for work. A timer the program left behind may raise here: it is shown and changes nothing."""
        try:
            wait()
        except BaseException as stray:
            os.write(2, self._explained(stray))

    def _execute(self, source: str, filename: str) -> object:
        lines = [line + "\n" for line in source.split("\n")]
        linecache.cache[filename] = (len(source), None, lines, filename)
        tree = _compile(source, filename, "exec", self._flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        body = tree.body
        if body and type(body[-1]) is ast.Expr:
            # One code object for the whole cell: with `await` in it, it must be one coroutine.
            last = body[-1]
            target = ast.copy_location(ast.Name(VALUE, ast.Store()), last)
            body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        code: CodeType = _compile(tree, filename, "exec", self._flags, dont_inherit=True)
        self._flags |= code.co_flags & FUTURE_FLAGS
        self.namespace.pop(VALUE, None)
        coroutine = _eval(code, self.namespace)
        if code.co_flags & CO_COROUTINE:
            self._run_coroutine(coroutine)
        return self.namespace.pop(VALUE, None)

    def _run_coroutine(self, coroutine: Coroutine[object, object, object]) -> None:
        import asyncio

        loop = self._loop
        if not isinstance(loop, asyncio.AbstractEventLoop) or loop.is_closed():
            self._loop = loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        task = loop.create_task(coroutine)
        try:
            loop.run_until_complete(task)
        finally:
            # An interrupt leaves through the loop, past the cell's task: end the task as well.
            if not task.done() and not loop.is_closed():
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))

    def _shown(self, value: object) -> bytes | None:
        if value is None:
            return None
        # As the interactive interpreter does: a `_` of the program's own goes first.
        builtins._ = value  # pyright: ignore[reportAttributeAccessIssue]
        return _capped(_repr(value))

    def _explained(self, raised: BaseException) -> bytes:
        """Formats under `arm`, because the text of an exception is made by the program's code."""
        kind, _, trace = sys.exc_info()
        try:
            try:
                self._interrupts.arm()
                return _capped("".join(_format_exception(kind, raised, _trimmed(trace))))
            finally:
                self._interrupts.disarm()
        except BaseException:
            return _capped(f"{type.__dict__['__name__'].__get__(kind)}: (its text could not be made)\n")

    def _settle(self) -> None:
        """Takes back what must not reach past the cell, and sends its output out."""
        sys.settrace(None)
        sys.setprofile(None)
        try:
            try:
                self._interrupts.arm()
                self._streams.flush()
            finally:
                self._interrupts.disarm()
        except BaseException:  # noqa: S110 - raised by the program's own stream: the cell has ended already
            pass

    def _leave_child(self, raised: BaseException | None, error: bytes) -> None:
        """A process the cell forked fell out of the cell's code: it ends here, as a script's would."""
        code = 0
        if isinstance(raised, SystemExit):
            code = raised.code if isinstance(raised.code, int) else 0 if raised.code is None else 1
        elif raised is not None:
            code = 1
            os.write(2, error)
        self._settle()
        os._exit(code & 0xFF)


def _capped(text: str) -> bytes:
    # Through `str`, because a program's `__repr__` may return a subclass with an `encode` of its own.
    if str.__len__(text) > TEXT_BYTES:
        text = str.__getitem__(text, slice(TEXT_BYTES))
    encoded = str.encode(text, "utf-8", "backslashreplace")
    if len(encoded) <= TEXT_BYTES:
        return encoded
    return encoded[:TEXT_BYTES].decode("utf-8", "ignore").encode()


def _trimmed(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's first frame on, without frames of ours further down."""
    start = trace
    while start is not None and not start.tb_frame.f_code.co_filename.startswith("<cell "):
        start = start.tb_next
    start = start or trace
    while start is not None and _is_ours(start):
        start = start.tb_next
    here = start
    while here is not None:
        after = here.tb_next
        while after is not None and _is_ours(after):
            after = after.tb_next
        here.tb_next = after
        here = after
    return start


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(OUR_FOLDER)
