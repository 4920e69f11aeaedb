"""Writes docs/sandboxes.md: what each level of isolation can and cannot do, from the code that says so."""

from __future__ import annotations

from pathlib import Path

from pinfold.sandbox.providers.doctor import level_table

PAGE = Path(__file__).parent.parent / "docs" / "sandboxes.md"
HEAD = """\
# Sandboxes, and what each cannot do

Made by `scripts/sandboxes.py`; do not edit.

`--sandbox auto`, the default, tries `namespaces` and proves it: a test session tries about twenty ways to escape, with bait files.
Where this machine refuses it, `auto` falls back to `landlock`, proven the same way, and says why and which command changes
that. Where neither works, nothing runs. A sandbox asked for by name is given or refused, never lowered.
`unsafe-local` is never chosen for you.

"""


def page() -> str:
    return HEAD + level_table()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
