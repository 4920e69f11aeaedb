"""data_view(view="stats") against pandas on a CSV of a gigabyte: time, memory, and whether the figures are the same.

    ./.venv/bin/python bench/data_view.py [--gigabytes N] [--python PYTHON] [--keep FILE] [--rounds N]

Both run in the data environment (`pinfold env build`), ours inside a session of the sandbox, pandas beside it. Each
round is one of ours and one of pandas', so that both meet the same machine. Prints JSON; exits 1 unless every figure
agrees, the peak is under 300 MiB and the faster of our rounds beats the fastest of pandas' three times.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from pinfold.sandbox import Limits, open_session
from pinfold.sandbox.environment import default_python
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.tools.builtin.programs import source

ROWS = 6_700_000
"""To the gigabyte."""
PEAK_MIB = 300
FASTER = 3.0
EXACT = ("count", "unique", "freq", "min", "25%", "50%", "75%", "max")
NEAR = ("mean", "std")
# An export of orders: whole and broken numbers, texts of few and of many kinds, dates, and holes in between.
MAKE = """
import duckdb, sys
path, rows = sys.argv[1], int(sys.argv[2])
def chance(salt): return f"(hash(i * 31 + {salt}) % 1000000 / 1000000.0)"
duckdb.connect(config={"memory_limit": "2GB", "threads": 2}).execute(f'''
COPY (SELECT
    i AS row,
    'ORD-' || lpad(to_hex(hash(i * 31 + 1)), 16, '0') AS order_id,
    'customer.' || (hash(i * 31 + 2) % 2000000)::VARCHAR || '@mail.example' AS email,
    ['north', 'south', 'east', 'west', 'centre'][(hash(i * 31 + 3) % 5)::INT + 1] AS region,
    'SKU-' || lpad((floor(pow({chance(4)}, 2) * 5000)::INT)::VARCHAR, 5, '0') AS product,
    CASE WHEN {chance(5)} < 0.02 THEN NULL ELSE 'agent ' || (hash(i * 31 + 6) % 400)::VARCHAR END AS agent,
    (hash(i * 31 + 7) % 1000)::INT AS quantity,
    (hash(i * 31 + 8) % 100000000)::BIGINT - 50000000 AS balance,
    CASE WHEN {chance(9)} < 0.05 THEN NULL ELSE round(exp({chance(10)} * 8), 2) END AS price,
    round(sqrt(-2 * ln({chance(11)} + 1e-7)) * cos(2 * pi() * {chance(12)}), 6) AS score,
    CASE WHEN {chance(13)} < 0.1 THEN NULL ELSE hash(i * 31 + 14) % 100 END AS discount,
    TIMESTAMP '2015-01-01' + INTERVAL (hash(i * 31 + 15) % 315360000) SECOND AS created,
    DATE '2015-01-01' + (hash(i * 31 + 17) % 3650)::INT AS shipped,
    hash(i * 31 + 16) % 2 = 0 AS paid
FROM range({rows}) AS numbers(i)) TO '{path}' (HEADER, DELIMITER ',')''')
"""
PANDAS = """
import json, resource, sys, time
import pandas
begun = time.perf_counter()
told = pandas.read_csv(sys.argv[1]).describe(include="all")
took = time.perf_counter() - begun
usage = resource.getrusage(resource.RUSAGE_SELF)
figures = {name: {key: None if pandas.isna(value) else getattr(value, "item", lambda: value)()
                  for key, value in told[name].items()} for name in told}
print(json.dumps({"wall_s": took, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024,
                  "figures": figures}, default=str))
"""
MEASURE = """
import resource
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, file=sys.stderr)
"""


def main() -> int:
    arguments = argparse.ArgumentParser(description="data_view against pandas")
    arguments.add_argument("--gigabytes", type=float, default=1.0)
    arguments.add_argument("--python", type=Path, default=default_python())
    arguments.add_argument("--keep", type=Path, metavar="FILE", help="make the CSV there, or use the one that is there")
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    if given.python is None:
        print("the data environment is not built: `pinfold env build`", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        table = given.keep or Path(folder) / "orders.csv"
        if not table.exists():
            run(given.python, MAKE, table, str(int(ROWS * given.gigabytes)))
        result = anyio.run(compare, given.python, table.absolute(), table.stat().st_size, given.rounds)
    print(json.dumps(result, indent=2))
    return 0 if result["passed"] else 1


async def compare(python: Path, table: Path, size: int, rounds: int) -> dict[str, Any]:
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    async with open_session(table.parent, Namespaces(python), limits=Limits(file_bytes=1 << 20)) as session:
        for _ in range(rounds):
            ours.append(await stats(session, table))
            theirs.append(json.loads(await anyio.to_thread.run_sync(run, python, PANDAS, table)))
    wrong, compared = differences(ours[-1].pop("figures"), theirs[-1].pop("figures"))
    for one in (*ours, *theirs):
        one.pop("figures", None)
    best = min(one["wall_s"] for one in ours), min(one["wall_s"] for one in theirs)
    peak = max(one["peak_mib"] for one in ours)
    return {
        "bytes": size,
        "ours": ours,
        "pandas": theirs,
        "faster": best[1] / best[0],
        "peak_mib": peak,
        "figures_compared": compared,
        "figures_wrong": wrong,
        "passed": not wrong and compared > 60 and peak < PEAK_MIB and best[1] / best[0] >= FASTER,
    }


async def stats(session: Any, table: Path) -> dict[str, Any]:
    """From the request to the answer, as the tool makes it: starting Python and importing DuckDB count."""
    asked: dict[str, Any] = {"path": str(table), "view": "stats", "rows": 5, "known": {}}
    request = json.dumps({"do": "view", "with": asked}).encode()
    begun = time.perf_counter()
    ran = await session.command(["python3", "-I", "-c", source("tables") + MEASURE], timeout_s=600, stdin=request)
    took = time.perf_counter() - begun
    reply = json.loads(ran.stdout)
    if "error" in reply:
        raise SystemExit(reply["error"])
    cpu, peak = map(float, ran.stderr.decode().split()[-2:])
    return {"wall_s": took, "cpu_s": cpu, "peak_mib": peak, "figures": {one["column"]: one for one in reply["figures"]}}


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[list[str], int]:
    wrong = [f"columns: {list(ours)} are not {list(theirs)}"] if list(ours) != list(theirs) else []
    compared = 0
    for name, told in theirs.items():
        for key in (*EXACT, *NEAR):
            want, have = told.get(key), ours[name].get(key)
            if want is None:
                continue
            compared += 1
            same = math.isclose(want, have, rel_tol=1e-9) if key in NEAR and have is not None else want == have
            if not same:
                wrong.append(f"{name} {key}: {have!r} is not {want!r}")
    return wrong, compared


def run(python: Path, program: str, *given: str | Path) -> str:
    done = subprocess.run(
        [str(python), "-I", "-c", program, *map(str, given)], stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
