"""What stands in the place of a secret."""

from __future__ import annotations

MARK = "[redacted]"
