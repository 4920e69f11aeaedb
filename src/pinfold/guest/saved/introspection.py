"""What types and modules are, what a new process finds under a name, and why a value cannot be saved.

Reads the attributes of types through `type`, so that a metaclass of the program cannot interfere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

kind_of: Callable[[object], type[Any]] = type
"""`type`, annotated so that type checkers accept its result."""
name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
module_of: Callable[[type], Any] = type.__dict__["__module__"].__get__
dict_of: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
SESSION = "__main__"
"""The module of the session's own classes and functions."""


def paths_of(kind: type) -> list[str]:
    """Return the full names of a class and its bases, nearest first."""
    return [f"{module_of(base)}.{name_of(base)}" for base in type.mro(kind)]


def import_name(module: object) -> str | None:
    """Return the name under which a new process can import this module."""
    if type(module) is not ModuleType and not issubclass(type(module), ModuleType):
        return None
    own = vars(module)
    for name in (getattr(own.get("__spec__"), "name", None), own.get("__name__")):
        if type(name) is str and sys.modules.get(name) is module and own.get("__spec__") is not None:
            return name
    return None


def is_named(value: object, module_name: object, path: object) -> bool:
    """Return True if a new process finds this same object under its name."""
    if type(module_name) is not str or type(path) is not str or module_name == SESSION:
        return False
    try:
        found: object = sys.modules.get(module_name)
        if found is None and module_name.partition(".")[0] in sys.modules:
            found = import_module(module_name)  # may be a submodule that is not loaded yet
        if import_name(found) is None:
            return False
        for name in path.split("."):
            found = getattr(found, name)
    except Exception:  # no such module, or no such name in it
        return False
    return found is value


def full_name(value: object) -> str | None:
    """Return `module:name`, under which a new process finds a library's class or function; None if it has none."""
    if not callable(value):
        return None
    if module_of(kind_of(value)) == SESSION:  # an instance of a session's class, or of its metaclass
        return None
    module_name, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"{module_name}:{path}" if is_named(value, module_name, path) else None


def find_in_modules(wanted: Mapping[int, str], but: dict[str, object]) -> dict[str, str]:
    """Find those of the objects `wanted`, given by id and name, that a module holds too. Return the module by name."""
    found: dict[str, str] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name in ("builtins", "sys") or type(module) is not ModuleType or vars(module) is but:
            continue
        for key in wanted.keys() & set(map(id, vars(module).values())):
            found.setdefault(wanted[key], module_name)
    return found


def find_in_library(kind: type) -> dict[int, tuple[str, str]]:
    """Return values of a class that its own module keeps under a name, such as `dataclasses.MISSING`.

    Only values that do not change: all in the standard library, and in other libraries those that hold nothing.
    """
    module_name = module_of(kind)
    module = sys.modules.get(module_name) if type(module_name) is str else None
    if module is None or module_name == SESSION or import_name(module) is None:
        return {}
    is_standard = module_name.partition(".")[0] in sys.stdlib_module_names
    return {
        id(held): (module_name, name)
        for name, held in vars(module).items()
        if type(held) is kind and (is_standard or is_empty(held))
    }


def is_empty(value: object) -> bool:
    """Return True if the value has no state, so that only its identity matters."""
    kind = type(value)
    return kind.__itemsize__ == 0 and kind.__basicsize__ <= 32 and not getattr(value, "__dict__", None)


def inner_modules(name: str) -> list[str]:
    """Return the loaded submodules: `import xml.dom` binds only `xml`, so a new process must import these too."""
    loaded = [one for one in list(sys.modules) if type(one) is str and one.startswith(f"{name}.")]
    return sorted(one for one in loaded if "._" not in one and import_name(sys.modules.get(one)) == one)


CHARS = 200
"""Most characters of a reason, which is shown on one line."""


OPEN_FILE = "an open file closes with its process; open it again"


class Unsaved(Exception):
    """The value cannot be saved; the text tells the user why."""


LOST = {
    path: reason
    for reason, paths in {
        "a lock belongs to the threads of one process": "_thread.lock _thread.RLock threading.Condition threading.Semaphore",
        "an event belongs to the threads of one process": "threading.Event",
        "a barrier belongs to the threads of one process": "threading.Barrier",
        "a thread ends with its process": "threading.Thread",
        "values of threads end with their process": "_thread._local",
        "a queue belongs to the threads of one process": "queue.Queue _queue.SimpleQueue",
        "its workers end with their process": "concurrent.futures._base.Executor multiprocessing.pool.Pool",
        "a running task ends with its process": "concurrent.futures._base.Future _asyncio.Task",
        "a child process cannot be resumed": "multiprocessing.process.BaseProcess subprocess.Popen",
        OPEN_FILE: "_io.TextIOWrapper _io.BufferedReader _io.BufferedWriter _io.BufferedRandom _io.BufferedRWPair _io.FileIO",
        "a temporary file is removed with its process": "tempfile._TemporaryFileWrapper",
        "a temporary folder is removed with its process": "tempfile.TemporaryDirectory",
        "a running listing of a folder cannot be saved": "posix.ScandirIterator",
        "memory mapped to a file ends with its process; map it again": "mmap.mmap",
        "a loaded library ends with its process; load it again": "ctypes.CDLL",
        "a network connection ends with its process; connect again": "_socket.socket",
        "a TLS context cannot be saved; make it again": "ssl.SSLContext",
        "what it waits for ends with its process": "selectors.BaseSelector select.epoll",
        "a database connection ends with its process; connect again": "sqlite3.Connection _duckdb.DuckDBPyConnection",
        "a database cursor ends with its process; run the query again": "sqlite3.Cursor",
        "a query belongs to its connection; run it again, or keep its result as a frame": "duckdb._relation.DuckDBPyRelation",
        "a generator cannot be saved half way; make it again": "builtins.generator builtins.async_generator",
        "a coroutine cannot be saved half way; make it again": "builtins.coroutine",
        "a running iterator over a dict cannot be saved; make it again": "builtins.dict_keyiterator builtins.dict_valueiterator builtins.dict_itemiterator builtins.odict_iterator",
        "a running iterator over a set cannot be saved; make it again": "builtins.set_iterator",
        "a frame ends with the call it belongs to": "builtins.frame",
        "a traceback holds the frames of calls that have ended": "builtins.traceback",
        "an awaited result ends with its process": "_asyncio.Future",
        "an event loop ends with its process": "asyncio.events.AbstractEventLoop",
        "what it calls when the process ends cannot be moved to another process": "weakref.finalize",
        "a weak proxy does not reveal its target": "weakref.ProxyType builtins.weakproxy builtins.weakcallableproxy",
        "a context belongs to its process": "_contextvars.Context _contextvars.Token",
        "a context variable belongs to its process": "_contextvars.ContextVar",
        "memory of a library outside Python cannot be saved": "builtins.PyCapsule",
    }.items()
    for path in paths.split()
}
"""Why a type and its subclasses cannot be saved, by the full name of the type."""


def why_unsavable(kind: type) -> str | None:
    return next((LOST[path] for path in paths_of(kind) if path in LOST), None)


def one_line(error: BaseException) -> str:
    """Return the error in one line, with its type if the message comes from the program or a library."""
    try:
        text = " ".join(str(error).split())
    except BaseException:
        text = ""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "there is not enough memory to save it"
    if text.startswith("cannot pickle '") and text.endswith("' object"):
        return f"a {text[15:-8]} cannot be saved"
    return cut(f"{name_of(type(error))}: {text}" if text else name_of(type(error)))


def cut(text: str) -> str:
    return text if len(text) <= CHARS else text[: CHARS - 3] + "..."
