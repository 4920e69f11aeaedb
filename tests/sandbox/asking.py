"""What tests of sessions ask them."""

from __future__ import annotations

import os
import subprocess
import sys

from pinfold.sandbox import OnCall, Session


async def value(session: Session, code: str, on_call: OnCall | None = None) -> str | None:
    """Of a cell that ends well."""
    outcome = await (session.run(code, on_call=on_call) if on_call else session.run(code))
    assert outcome.status == "ok", outcome
    return outcome.value


def as_user(program: str) -> subprocess.CompletedProcess[str]:
    """What a Python program does that an ordinary user runs. Needs root."""
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        user=1234,
        group=1234,
        extra_groups=[],
        cwd="/",
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
