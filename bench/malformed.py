"""Malformed model outputs by the thousand: each must be understood, stored and replayed.

    ./.venv/bin/python bench/malformed.py [--count N] [--seed N]

Hypothesis makes the outputs: surrogates, NUL, deep JSON, calls interleaved and within each other, streams cut off,
ten million characters. Each is a turn of a real session: a model in text, the engine, a log on disk; then the log is
opened again, recorded and replayed. Exits 1 if anything crashes, takes over a second to understand, or is not the same again.
"""

from __future__ import annotations

import argparse
import functools
import logging
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.model.malformed_replies import LIMIT_S, Output, Tally, outputs, survive

BATCH = 25
"""Turns of one session."""
ROUND = 2_000
SHOWN = 20


def made(count: int, number: int) -> list[Output]:
    """As many different ones; hypothesis alone repeats itself."""
    found: dict[Output, None] = {}

    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(outputs())
    def collect(output: Output) -> None:
        found[output] = None

    while len(found) < count:
        seed(number)(collect)()
        number += 1
    return list(found)[:count]


def survived(chosen: list[Output], folder: Path) -> tuple[Tally, list[str]]:
    tally, crashes = Tally(), list[str]()
    for start in range(0, len(chosen), BATCH):
        batch, log = chosen[start : start + BATCH], folder / str(start)
        when = "unless-native" if start // BATCH % 4 == 3 else "always"
        try:
            anyio.run(functools.partial(survive, batch, log, tally, when))
        except Exception:  # noqa: BLE001 - this is what is looked for
            crashes.append(traceback.format_exc(limit=-6))
        shutil.rmtree(log, ignore_errors=True)
        print(f"\r{tally.outputs:>8,} of {len(chosen):,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return tally, crashes


def show(chosen: list[Output], tally: Tally, crashes: list[str], seconds: float) -> None:
    kinds = Counter(
        kind
        for output in chosen
        for kind, holds in (
            ("of ten million characters", output.swollen and bool(output.said)),
            ("broken off", output.breaks_off),
            ("stopped by the limit of tokens", output.finish == "length"),
            ("with lone surrogates", any("\ud800" <= char <= "\udfff" for char in output.said)),
            ("with NUL", "\0" in output.said),
            ("that the user wrote too", output.quoted),
        )
        if holds
    )
    print(f"{tally.outputs:>9,}  different outputs in {seconds:.0f} s")
    for kind, times in kinds.most_common():
        print(f"{times:>9,}  {kind}")
    print(f"{tally.calls:>9,}  calls read out of them")
    print(f"{tally.corrections:>9,}  corrections")
    print(f"{tally.slowest_s:>9.2f}  s of processor to understand the slowest, at most {LIMIT_S:g}")
    if tally.slowest:
        print(f"           which is {tally.slowest.said[:60]!r}{', again and again' * tally.slowest.swollen}")
    print(f"{tally.slowest_turn_s:>9.2f}  s for the slowest turn, with its log")
    print(f"{len(crashes):>9,}  crashes")
    print(f"{len(tally.wrong):>9,}  too slow, stored or replayed otherwise")
    for words in (*crashes, *tally.wrong)[:SHOWN]:
        print(f"\n{words}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=20261115)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    chosen = made(arguments.count, arguments.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="malformed-") as folder:
        tally, crashes = survived(chosen, Path(folder))
    show(chosen, tally, crashes, time.monotonic() - began)
    whole = tally.outputs == len(chosen) >= arguments.count
    if not whole:
        print(f"\nonly {tally.outputs:,} of {arguments.count:,} outputs came to their end")
    return 0 if whole and not crashes and not tally.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
