"""Why a value cannot be saved, in one line for the user and the model."""

from __future__ import annotations

from .introspection import name_of, paths_of

CHARS = 200
"""Of a reason; it is a line, not a story."""


OPEN_FILE = "an open file closes with its process; open it again"


class Unsaved(Exception):
    """This cannot be saved; the text says why, to the user."""


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
        "a child process cannot be taken up again": "multiprocessing.process.BaseProcess subprocess.Popen",
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
        "what it would call at the end of the process cannot be moved to another": "weakref.finalize",
        "a weak proxy does not say what it stands for": "weakref.ProxyType builtins.weakproxy builtins.weakcallableproxy",
        "a context belongs to its process": "_contextvars.Context _contextvars.Token",
        "a context variable belongs to its process": "_contextvars.ContextVar",
        "memory of a library outside Python cannot be saved": "builtins.PyCapsule",
    }.items()
    for path in paths.split()
}
"""By the full name of a type, for it and its subclasses."""


def why_unsavable(kind: type) -> str | None:
    return next((LOST[path] for path in paths_of(kind) if path in LOST), None)


def one_line(error: BaseException) -> str:
    """What went wrong, with its kind where the program or a library said it."""
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
