"""Paths below the user's home, as one would type them."""

from __future__ import annotations

import re
from pathlib import Path


def homely(text: str) -> str:
    """`text` with `~` where a path in it begins with the home."""
    try:
        home = str(Path.home())
    except RuntimeError:  # a user without one
        return text
    return re.sub(rf"(?<![\w./~-]){re.escape(home)}/", "~/", text)
