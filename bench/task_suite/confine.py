"""Code that a model wrote runs without a network, where the machine can take it away."""

from __future__ import annotations

import functools
import subprocess


@functools.cache
def without_network() -> tuple[str, ...]:
    """What to put before a command."""
    for command in (("unshare", "--net"), ("unshare", "--net", "--map-root-user")):
        try:
            done = subprocess.run([*command, "true"], capture_output=True, check=False)
        except FileNotFoundError:
            return ()
        if done.returncode == 0:
            return command
    return ()
