"""What the host asks of launcher and zygote, as JSON in a file of its own. The host is trusted; nobody else writes here."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

MESSAGE_BYTES = 1 << 16
Request = dict[str, "Any"]


def read_request(fd: int) -> Request:
    return json.loads(os.pread(fd, os.fstat(fd).st_size, 0))
