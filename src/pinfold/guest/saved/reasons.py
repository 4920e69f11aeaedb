"""Why a value cannot be saved, in one line for the user and the model."""

from __future__ import annotations

from .introspection import name_of, paths_of

CHARS = 200
"""Of a reason; it is a line, not a story."""


OPEN_FILE = "an open file closes with its process; open it again"


class Unsaved(Exception):
    """This cannot be saved; the text says why, to the user."""


LOST = {
    "_thread.lock": "a lock belongs to the threads of one process",
    "_thread.RLock": "a lock belongs to the threads of one process",
    "threading.Condition": "a lock belongs to the threads of one process",
    "threading.Event": "an event belongs to the threads of one process",
    "threading.Semaphore": "a lock belongs to the threads of one process",
    "threading.Barrier": "a barrier belongs to the threads of one process",
    "threading.Thread": "a thread ends with its process",
    "_thread._local": "values of threads end with their process",
    "queue.Queue": "a queue belongs to the threads of one process",
    "_queue.SimpleQueue": "a queue belongs to the threads of one process",
    "concurrent.futures._base.Executor": "its workers end with their process",
    "concurrent.futures._base.Future": "a running task ends with its process",
    "multiprocessing.process.BaseProcess": "a child process cannot be taken up again",
    "multiprocessing.pool.Pool": "its workers end with their process",
    "subprocess.Popen": "a child process cannot be taken up again",
    "_io.TextIOWrapper": OPEN_FILE,
    "_io.BufferedReader": OPEN_FILE,
    "_io.BufferedWriter": OPEN_FILE,
    "_io.BufferedRandom": OPEN_FILE,
    "_io.BufferedRWPair": OPEN_FILE,
    "_io.FileIO": OPEN_FILE,
    "tempfile._TemporaryFileWrapper": "a temporary file is removed with its process",
    "tempfile.TemporaryDirectory": "a temporary folder is removed with its process",
    "posix.ScandirIterator": "a running listing of a folder cannot be saved",
    "mmap.mmap": "memory mapped to a file ends with its process; map it again",
    "ctypes.CDLL": "a loaded library ends with its process; load it again",
    "_socket.socket": "a network connection ends with its process; connect again",
    "ssl.SSLContext": "a TLS context cannot be saved; make it again",
    "selectors.BaseSelector": "what it waits for ends with its process",
    "select.epoll": "what it waits for ends with its process",
    "sqlite3.Connection": "a database connection ends with its process; connect again",
    "sqlite3.Cursor": "a database cursor ends with its process; run the query again",
    "_duckdb.DuckDBPyConnection": "a database connection ends with its process; connect again",
    "duckdb._relation.DuckDBPyRelation": "a query belongs to its connection; run it again, or keep its result as a frame",
    "builtins.generator": "a generator cannot be saved half way; make it again",
    "builtins.coroutine": "a coroutine cannot be saved half way; make it again",
    "builtins.async_generator": "a generator cannot be saved half way; make it again",
    "builtins.dict_keyiterator": "a running iterator over a dict cannot be saved; make it again",
    "builtins.dict_valueiterator": "a running iterator over a dict cannot be saved; make it again",
    "builtins.dict_itemiterator": "a running iterator over a dict cannot be saved; make it again",
    "builtins.set_iterator": "a running iterator over a set cannot be saved; make it again",
    "builtins.odict_iterator": "a running iterator over a dict cannot be saved; make it again",
    "builtins.frame": "a frame ends with the call it belongs to",
    "builtins.traceback": "a traceback holds the frames of calls that have ended",
    "_asyncio.Future": "an awaited result ends with its process",
    "_asyncio.Task": "a running task ends with its process",
    "asyncio.events.AbstractEventLoop": "an event loop ends with its process",
    "weakref.finalize": "what it would call at the end of the process cannot be moved to another",
    "weakref.ProxyType": "a weak proxy does not say what it stands for",
    "builtins.weakproxy": "a weak proxy does not say what it stands for",
    "builtins.weakcallableproxy": "a weak proxy does not say what it stands for",
    "_contextvars.Context": "a context belongs to its process",
    "_contextvars.ContextVar": "a context variable belongs to its process",
    "_contextvars.Token": "a context belongs to its process",
    "builtins.PyCapsule": "memory of a library outside Python cannot be saved",
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
