"""Live data of a session, and how it is looked at from outside: by content, and without leaving a name behind."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bench.sandbox_suite.processes import Memory, descendants

from pinfold.sandbox import Outcome, Session

BIG = """
import numpy, pandas
array = numpy.arange(110_000_000, dtype='f8')
frame = pandas.DataFrame({'key': numpy.arange(2_000_000) % 997, 'value': numpy.random.rand(2_000_000), 'row': numpy.arange(2_000_000)})
words = {number: str(number) for number in range(400_000)}
"""
SIZES = """
import sys
[array.nbytes, int(frame.memory_usage(deep=True).sum()), sys.getsizeof(words) + sum(map(sys.getsizeof, words.values()))]
"""
LONG_S = 300.0
_DIGESTS = """
import hashlib, pickle, sys, types

def content(value):
    numpy, pandas = sys.modules.get('numpy'), sys.modules.get('pandas')
    if pandas and isinstance(value, (pandas.DataFrame, pandas.Series)):
        rows = pandas.util.hash_pandas_object(value).values.tobytes()
        shape = [list(map(str, value.columns)), list(map(str, value.dtypes))] if value.ndim == 2 else [str(value.dtype)]
        return rows + repr(shape).encode()
    if numpy and isinstance(value, numpy.ndarray):
        return memoryview(numpy.ascontiguousarray(value)).cast('B') if value.nbytes else b''
    if isinstance(value, types.ModuleType):
        return value.__name__.encode()
    if isinstance(value, types.FunctionType):
        return value.__code__.co_code
    return pickle.dumps(value, 5)

def digests(names):
    return {
        name: hashlib.blake2b(content(value), digest_size=12).hexdigest()
        for name, value in sorted(names.items()) if not name.startswith('_')
    }
"""
DIGESTS = (
    f"(lambda scope: (exec({_DIGESTS!r}, scope),"
    " print(__import__('json').dumps(scope['digests'](globals()))))[0])({})"
)


@contextmanager
def temporary() -> Generator[Path]:
    """A folder that the session's own user may enter too."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def measured(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def ran(session: Session, code: str) -> Outcome:
    """A cell that must go well."""
    outcome = await session.run(code, timeout_s=LONG_S)
    if outcome.status != "ok":
        raise RuntimeError(f"{code[:60]!r} ended with {outcome.status}: {(outcome.error or '')[-300:]}")
    return outcome


async def value(session: Session, code: str) -> str:
    outcome = await ran(session, code)
    if outcome.value is None:
        raise RuntimeError(f"{code[:60]!r} ended with {outcome.status}: {(outcome.error or '')[-300:]}")
    return outcome.value


async def digests(session: Session) -> dict[str, str]:
    """Of every variable, by content."""
    return json.loads((await ran(session, DIGESTS)).stdout)


def used() -> int:
    """Memory of everything we have started, shared pages counted once."""
    return Memory.of(descendants(os.getpid())).pss


async def pauses(session: Session, leaves: Callable[[int], str], rounds: int = 9) -> list[float]:
    """How much longer a cell takes that comes while the state after the last one is being kept."""
    found: list[float] = []
    for number in range(rounds):
        await session.run("x = 1")
        plain = await measured(lambda: session.run("x = 2"))
        await session.run(leaves(number))
        found.append(await measured(lambda: session.run("x = 3")) - plain)
    return found


def median(times: list[float]) -> float:
    return statistics.median(times)
