"""The one way into this folder."""

from __future__ import annotations

from functools import lru_cache

from pinfold.policy.shell.script import Script


@lru_cache(maxsize=512)
def read_script(command: str) -> Script:
    """What a shell would run. Never raises: what is not understood says so."""
    # Parser, lists and expressions take 0.1 s to load, and most sessions have no shell command.
    from pinfold.policy.shell.reading import Reader
    from pinfold.policy.shell.words import strange

    reader = Reader()
    if reason := strange(command):
        reader.stop(reason)
    else:
        reader.read(command, 0)
    return reader.script()
