"""Runs cells: compiles, executes, shows the last value, explains errors. Uses neither the channel nor files."""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import random
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import CodeType, ModuleType

from ..calls import call, is_possible
from . import displays, import_hooks
from .bindings import Origins, is_trivial
from .displays import Displays
from .interrupts import Interrupts
from .mime_bundle import Forms, cap_text, is_plot, plain_form, rich_forms, show_figures
from .streams import Streams
from .tracebacks import format_error, missing_package

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

CO_COROUTINE = 0x80
FUTURE_FLAGS = 0x1FE0000
"""The bits of a code object that `from __future__` sets; those of one cell apply to the next, as at a prompt."""
VALUE = "<value>"
"""The name that a cell's last value is bound to; the program cannot write such a name."""

# Bound at import: a program may replace these names in their modules, and the guest must still answer.
_compile, _eval, _getpid = compile, eval, os.getpid
_modules = sys.modules


class Result:
    """How a cell ended, with its texts already encoded and capped."""

    def __init__(self) -> None:
        self.status = "ok"
        self.value: bytes | None = None
        self.error: bytes | None = None
        self.interrupted = False
        self.displays: list[Forms] = []
        self.out_of_memory = False
        """True if a MemoryError that the program did not catch ended the cell."""
        self.missing = ""
        """The package of a module that an import did not find; empty if there is none."""
        self.only_binds = False
        """True if the cell only bound names, so it can be run again."""


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
        self.displays = Displays()
        self.origins = Origins(self.namespace)
        self.around: Callable[[str], None] | None = None
        """Called with `pre_run_cell` and `post_execute`, for extensions of IPython such as `autoreload`."""
        self.finish: Callable[[], None] | None = None
        """Called at the end of a cell that succeeds, to finish the calls it began."""
        displays.install(self.displays)
        builtins.__dict__["answer"] = answer
        import_hooks.install_hooks()
        warmed = _modules.get(f"{__package__}.ipython")
        if warmed is not None and warmed.is_made():
            warmed.shell(self)

    def run(self, source: str, begun: Callable[[], None] | None = None, number: int | None = None) -> Result:
        """Run a cell. `begun` is called once an interrupt can no longer be missed, before any of the program's code."""
        self._count = self._count + 1 if number is None else number
        filename = f"<cell {self._count}>"
        self._interrupts.begin()
        self._streams.prepare()
        result = Result()
        try:
            try:
                self._interrupts.arm_cell()
                if begun is not None:
                    begun()
                tree = self.parse(source, filename)
                result.only_binds = isinstance(tree, ast.Module) and is_trivial(source, tree)
                result.value = self._show_value(self._execute(source, filename, tree), source)
            finally:
                self._interrupts.disarm()
        except BaseException as raised:
            result.value = None  # an interrupt may come after the value was made
            result.error, result.missing = self._describe_error(raised)
            result.out_of_memory = issubclass(type(raised), MemoryError)
            if _getpid() != self._pid:
                self._exit_child(raised, result.error)
        self.origins.end(self._count, failed=result.error is not None)
        self._settle()
        if _getpid() != self._pid:
            self._exit_child(None, b"")
        result.interrupted = self._interrupts.fired
        if result.error is not None:
            result.status = "interrupted" if result.interrupted else "error"
        result.displays = self.displays.take()
        return result

    def take_over(self) -> None:
        """Make this process, a fork of the session's process, take its place."""
        self._pid = self.displays.pid = _getpid()

    def branch_off(self, stdout: int, stderr: int) -> None:
        """After `take_over`: run alongside the original, with separate streams and random numbers."""
        self._streams.adopt(stdout, stderr)
        self._loop = None  # its selector is shared with the original
        seed_generators(self.namespace)

    @property
    def flags(self) -> int:
        """The `from __future__` flags that apply to later cells."""
        return self._flags & FUTURE_FLAGS

    def adopt(self, cells: dict[str, int], flags: int, sources: dict[str, str]) -> None:
        """Take over a namespace that `cells` made in another process; `sources` is their code, by number."""
        self.origins.adopt(cells)
        self._flags |= flags & FUTURE_FLAGS
        for number, source in sources.items():
            self._remember(source, f"<cell {number}>")

    def run_nested(self, source: str) -> object:
        """Run code that a magic of the running cell holds. Returns its last value, which is not shown."""
        filename = f"<cell {self._count}, inner>"
        return self._execute(source, filename, self.parse(source, filename))

    def parse(self, source: str, filename: str = "<cell>") -> ast.Module | SyntaxError:
        """Return the syntax tree, or the SyntaxError."""
        try:
            return _compile(source, filename, "exec", self._flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        except SyntaxError as error:
            return error

    def idle(self, wait: Callable[[], object]) -> None:
        """Wait for work. A timer the program left behind may raise here: the error is printed and ignored."""
        try:
            wait()
        except BaseException as stray:
            os.write(2, self._describe_error(stray)[0])

    def _execute(self, source: str, filename: str, tree: ast.Module | SyntaxError) -> object:
        self._remember(source, filename)
        if isinstance(tree, SyntaxError):
            tree = self._translate_cell(source, filename, tree)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            # One code object for the whole cell: with `await` in it, it must be one coroutine.
            target = ast.copy_location(ast.Name(VALUE, ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        code: CodeType = _compile(tree, filename, "exec", self._flags, dont_inherit=True)
        self._flags |= code.co_flags & FUTURE_FLAGS
        self.namespace.pop(VALUE, None)
        self.origins.begin(code)
        if self.around is not None:
            self.around("pre_run_cell")
        coroutine = _eval(code, self.namespace)
        if code.co_flags & CO_COROUTINE:
            self._run_coroutine(coroutine)
        if self.finish is not None:
            self.finish()
        if self.around is not None:
            self.around("post_execute")
        return self.namespace.pop(VALUE, None)

    def _translate_cell(self, source: str, filename: str, failure: SyntaxError) -> ast.Module:
        """Return the syntax tree of a cell with magics or commands. Raises SyntaxError if it is no such cell."""
        from .magics import translate_cell

        python = translate_cell(source, failure, self)
        if python is None:
            raise failure
        if python.rstrip("\n").count("\n") != source.rstrip("\n").count("\n"):
            # The lines no longer match the user's one to one: a traceback must show those that ran.
            self._remember(python, filename)
        tree = self.parse(python, filename)
        if isinstance(tree, SyntaxError):
            raise tree
        return tree

    @staticmethod
    def _remember(source: str, filename: str) -> None:
        """Keep the source for tracebacks and for `inspect`."""
        lines = [line + "\n" for line in source.split("\n")]
        linecache.cache[filename] = (len(source), None, lines, filename)

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
            # An interrupt is raised in the loop, not in the cell's task: end the task as well.
            if not task.done() and not loop.is_closed():
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))
            if task.done() and not task.cancelled():
                task.exception()  # an interrupt is reported already; asyncio would print it again

    def _show_value(self, value: object, source: str) -> bytes | None:
        text = None
        if value is not None:
            # As the interactive interpreter does: a `_` in the program's namespace takes precedence.
            builtins.__dict__["_"] = value
            if not source.rstrip().endswith(";"):  # a final `;` says not to show the value
                text = plain_form(value)
                self._display(value, text)
        if "matplotlib.pyplot" in _modules:
            show_figures(displays.display)
        return text

    def _display(self, value: object, text: bytes) -> None:
        if hasattr(type(value), "_ipython_display_") and not is_plot(value):
            displays.display(value)
        elif forms := rich_forms(value):
            self.displays.add({"text/plain": text, **forms}, told=True)

    def _describe_error(self, raised: BaseException) -> tuple[bytes, str]:
        """Return the error's text and the missing package. Interruptible, because both may run the program's code."""
        kind, _, trace = sys.exc_info()
        try:
            try:
                self._interrupts.arm()
                missing = missing_package(raised) if issubclass(type(raised), ImportError) else ""
                return cap_text(format_error(raised, trace)), missing
            finally:
                self._interrupts.disarm()
        except BaseException:
            return cap_text(f"{type.__dict__['__name__'].__get__(kind)}: (its text could not be made)\n"), ""

    def _settle(self) -> None:
        """Undo what must not outlast the cell, and flush its output."""
        sys.settrace(None)
        sys.setprofile(None)
        with suppress(BaseException):  # raised by the program's own stream: the cell has ended already
            try:
                self._interrupts.arm()
                if "matplotlib.pyplot" in _modules and _getpid() == self._pid:
                    # The figures of a cell that failed half way; after an interrupt they are only closed.
                    show_figures(None if self._interrupts.fired else displays.display)
                self._streams.flush()
            finally:
                self._interrupts.disarm()

    def _exit_child(self, raised: BaseException | None, error: bytes) -> None:
        """End a process that the cell forked and that has left the cell's code, as a script's would end."""
        code = 0
        if isinstance(raised, SystemExit):
            code = raised.code if isinstance(raised.code, int) else 0 if raised.code is None else 1
        elif raised is not None:
            code = 1
            os.write(2, error)
        self._settle()
        os._exit(code & 0xFF)


def answer(text: object = "") -> None:
    """Tell the user the result and end the turn, unless the rest of the code fails."""
    if is_possible():
        call("answer", text=str(text))
    else:
        sys.stdout.write(f"{text}\n")  # for the model, which then tells the user


def seed_generators(namespace: dict[str, object] | None = None) -> None:
    """Reseed the generators of `random` and numpy, and those that variables hold."""
    random.seed()
    numbers: Any = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    held: list[Any] = list((namespace or {}).values())
    for value in held:
        if type(value) is random.Random:
            value.seed()
        elif numbers is not None and type(value) is numbers.Generator:
            generator = value.bit_generator
            generator.state = type(generator)().state
        elif numbers is not None and type(value) is numbers.RandomState:
            value.seed()
