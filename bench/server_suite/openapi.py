"""schemathesis over the server's own description: every answer is as it says, and none is an error of the server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.environments import make_environment
from bench.server_suite.stage import Report, Stage

VERSION = "4.32.5"
ENVIRONMENT = Path(__file__).resolve().parents[1] / "out" / "schemathesis"
LIMIT_S = 1200.0
SETTINGS = """
[[operations]]
include-path-regex = "^/(v1|agui)"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404", "409"]
"""
"""What OpenAI's protocols allow in a message is described loosely; what is wrong inside one is told with 400."""


def measure_openapi(stage: Stage, report: Report, *, quick: bool) -> None:
    """All but the stream of events, which does not end."""
    python = make_environment(ENVIRONMENT, (f"schemathesis=={VERSION}",))
    with TemporaryDirectory(prefix="pinfold-schemathesis-") as place:
        Path(place, "schemathesis.toml").write_text(SETTINGS, encoding="utf-8")
        command = [
            python.with_name("schemathesis"),
            "run",
            f"{stage.served.url}/openapi.json",
            *("--header", f"Authorization: Bearer {stage.served.token}"),
            *("--exclude-path-regex", "/events$"),
            *("--workers", "1", "--no-color", "--seed", "1"),
            *(("--max-examples", "10") if quick else ()),
        ]
        ran = subprocess.run(
            [str(part) for part in command],
            cwd=place,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    if ran.returncode:
        print(ran.stdout[-4000:], ran.stderr[-1000:], flush=True)
    tally = re.search(r"[\d,]+ generated[^\n]*", ran.stdout)
    report.tell("schemathesis over /openapi.json", f"cases: {tally[0]}" if tally else f"ended with {ran.returncode}")
    report.judge("its failures (its exit code)", ran.returncode, 0)
