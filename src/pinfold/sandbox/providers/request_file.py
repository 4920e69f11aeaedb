"""A request as a file of its own, to be passed on: a list of masked files may be longer than any message can be."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

MESSAGE_BYTES = 1 << 16


@contextmanager
def open_request_file(request: Mapping[str, Any]) -> Generator[int]:
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        os.write(fd, json.dumps(request).encode())
        yield fd
    finally:
        os.close(fd)
