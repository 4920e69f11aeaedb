"""What is compared, seen from the benchmark: something that opens sessions, and a session that runs cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

GROUPBY = """
import pandas as pd
frame = pd.DataFrame({"region": ["n", "s", "e", "w"] * 25, "sold": range(100)})
frame.groupby("region")["sold"].sum().to_dict()
"""
GROUPBY_VALUE = "{'e': 1250, 'n': 1200, 's': 1225, 'w': 1275}"
ASSIGN = "x = 1"
ADD = "41 + 1"
OUTPUT_BYTES = 100_000_000
OUTPUT = """
import sys
block = ("x" * 99 + "\\n") * 10_000
for _ in range(100):
    written = sys.stdout.write(block)
"""
FOREVER = "print('on', flush=True)\nwhile True: pass"
DAEMON_MARK = "31337.25"
DAEMONS = f"""
import subprocess
for _ in range(5):
    subprocess.Popen(["sleep", "{DAEMON_MARK}"], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
"""


@dataclass(frozen=True, slots=True)
class Answer:
    value: str | None
    stdout: int = 0
    """Length of the text that was received."""


class Live(Protocol):
    """A session, seen from the benchmark."""

    async def run(self, code: str) -> Answer:
        """Returns when result and output are received. Raises RuntimeError if the cell failed."""
        ...

    async def interrupted_s(self) -> float:
        """From the interrupt of an endless loop to its end as received."""
        ...

    async def close(self) -> None: ...


class Contender(Protocol):
    @property
    def name(self) -> str: ...

    async def open(self) -> Live: ...
