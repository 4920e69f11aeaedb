"""One live IPython shell for the magics that need it, without history, thread, file or prompt. Runs no cell itself."""

from __future__ import annotations

import atexit
import builtins
import os
import re
import shlex
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import commands, displays, import_hooks

if TYPE_CHECKING:
    from .runner import Engine

# Imported by name: the host's environment, where types are checked, need not have IPython.
DisplayPublisher: Any = import_module("IPython.core.displaypub").DisplayPublisher
InteractiveShell: Any = import_module("IPython.core.interactiveshell").InteractiveShell
Config: Any = import_module("traitlets.config").Config

PAGE_CHARS = 20_000
"""The most characters that `thing?` shows."""
INSTALLERS = ("pip", "conda", "mamba", "micromamba", "uv")
SCRIPTS = ("bash", "sh", "script", "perl", "python", "python3", "ruby")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class GuestPublisher(DisplayPublisher):
    """Sends what IPython's own code publishes to `display`."""

    def publish(self, data: object, metadata: object = None, **options: Any) -> None:
        displays.display(data, raw=True, metadata=metadata, **options)

    def clear_output(self, wait: bool = False) -> None:
        displays.clear_output(wait)


class GuestShell(InteractiveShell):
    """All attributes that are not defined here may be IPython's."""

    engine: Engine | None = None

    def init_ipython_dir(self, ipython_dir: object) -> None: ...

    def init_profile_dir(self, profile_dir: object) -> None: ...

    def init_virtualenv(self) -> None: ...

    def init_user_ns(self) -> None:
        """Leave the program's names alone; add only what `%cd` needs."""
        self.user_ns.setdefault("_dh", [os.getcwd()])

    def init_display_pub(self) -> None:
        self.display_pub = GuestPublisher(parent=self)

    def init_alias(self) -> None: ...

    def init_logstart(self) -> None: ...

    @property
    def db(self) -> dict[str, object]:
        return self.__dict__.setdefault("_memory", {})

    def system(self, cmd: str) -> None:
        self.user_ns["_exit_code"] = commands.system(self.var_expand(cmd, depth=1))

    system_raw = system_piped = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> object:
        lines = commands.as_lines(commands.getoutput(self.var_expand(cmd, depth=depth + 1)))
        return lines if split else "\n".join(lines)

    def run_cell(self, raw_cell: str, *_arguments: object, **_options: object) -> ExecutionResult:
        assert self.engine is not None
        value = self.engine.run_nested(raw_cell)
        if value is not None:
            displays.display(value)
        return ExecutionResult(value)

    def showtraceback(self, *_arguments: object, **_options: object) -> None:
        """Raise the error that a magic would print, as the cell's own."""
        raise  # noqa: PLE0704 - IPython calls this while it handles the exception

    showsyntaxerror = showtraceback

    def reset(self, *_arguments: object, **_options: object) -> None:
        """Forget the program's variables."""
        for name in [name for name in self.user_ns if not name.startswith("__")]:
            del self.user_ns[name]
        self.init_user_ns()


_shell_kind: Any = GuestShell


class ExecutionResult:
    """What `run_cell` returns. It holds no error: an error is raised instead."""

    success = True
    error_in_exec = error_before_exec = None

    def __init__(self, result: object) -> None:
        self.result = result

    def raise_error(self) -> None: ...


def make_shell(main: ModuleType, namespace: dict[str, object]) -> Any:
    """Make the one shell of this process. A zygote can make it before there is an engine."""
    import_hooks.install_hooks()
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.cache_size = 0
    made = _shell_kind.instance(config=config, user_module=main, user_ns=namespace)
    atexit.unregister(made.atexit_operations)
    made.set_hook("show_in_pager", _page, 0)
    register = made.register_magic_function
    for name in ("matplotlib", "pylab"):
        register(_matplotlib, "line", name)
    for name in INSTALLERS:
        register(_installer(name), "line", name)
    for name in SCRIPTS:
        register(_script(name), "cell", name)
    displays.patch_ipython()
    builtins.__dict__["display"] = displays.display
    builtins.__dict__["get_ipython"] = made.get_ipython
    return made


def is_made() -> bool:
    """Return whether a zygote made the shell; it may have failed with an IPython that is too old."""
    return _shell_kind.initialized()


def shell(engine: Engine) -> Any:
    """Return the shell, serving this engine."""
    made = _shell_kind.instance() if is_made() else make_shell(sys.modules["__main__"], engine.namespace)
    if made.engine is not engine:
        made.engine = engine
        made.user_module = sys.modules["__main__"]
        made.user_ns = engine.namespace
        made.init_user_ns()
        ours = made.display_pub

        def capture_display(forms: dict[str, bytes]) -> bool:
            if made.display_pub is ours:
                return False
            made.display_pub.publish(data=_as_text(forms), metadata={})
            return True

        engine.displays.captured = capture_display
        callbacks = made.events.callbacks

        def around(event: str) -> None:
            if callbacks[event]:
                made.events.trigger(event, *([ExecutionResult(None)] if event == "pre_run_cell" else []))

        engine.around = around
    return made


def _as_text(forms: dict[str, bytes]) -> dict[str, object]:
    texts = ("text/", "application/json", "application/javascript", "image/svg")
    return {mime: data.decode("utf-8", "replace") if mime.startswith(texts) else data for mime, data in forms.items()}


def _page(_shell: object, data: Any, *_arguments: object, **_options: object) -> None:
    text = _COLOUR.sub("", data if isinstance(data, str) else str(data["text/plain"]))
    rest = f"\n... {len(text) - PAGE_CHARS:,} more characters" if len(text) > PAGE_CHARS else ""
    sys.stdout.write(f"{text[:PAGE_CHARS].rstrip()}{rest}\n")


def _matplotlib(_line: str = "") -> None:
    """Figures are shown when a cell ends, whatever is asked for here."""


def _installer(name: str) -> Any:
    def magic(line: str) -> None:
        command = f"{name} {line}"
        wished = commands.parse_install(command) is not None
        commands.system(command if wished else f"{sys.executable} -m {command}" if name == "pip" else command)

    magic.__doc__ = f"Run {name}; packages are installed with the install tool."
    return magic


def _script(name: str) -> Any:
    def magic(line: str, cell: str) -> None:
        interpreter = sys.executable if name.startswith("python") else name
        commands.run_script(shlex.split(line) if name == "script" else [interpreter, *shlex.split(line)], cell)

    magic.__doc__ = f"Run the cell as a {name} script; an exit code that is not 0 is an error."
    return magic
