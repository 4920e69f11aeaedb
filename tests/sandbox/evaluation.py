"""What tests of sessions ask them."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.other_user import as_someone

from pinfold.sandbox import OnCall, Session


async def value(session: Session, code: str, on_call: OnCall | None = None) -> str | None:
    """Of a cell that ends well."""
    outcome = await (session.run(code, on_call=on_call) if on_call else session.run(code))
    assert outcome.status == "ok", outcome
    return outcome.value


def as_user(program: str, *arguments: str, uid: int = 1234) -> subprocess.CompletedProcess[str]:
    """What a Python program does that an ordinary user runs. Needs root."""
    return subprocess.run(
        as_someone(uid, sys.executable, "-c", program, *arguments),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
