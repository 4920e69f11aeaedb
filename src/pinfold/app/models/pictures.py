"""Files that a model is to look at."""

from __future__ import annotations

from pathlib import Path

from pinfold.app.errors import ConfigError
from pinfold.events import Image
from pinfold.log import Blobs

LARGEST = 20 << 20
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def is_picture(path: Path) -> bool:
    """Whether it is one that a model can look at."""
    try:
        with path.open("rb") as file:
            return _kind(file.read(12)) is not None
    except OSError:
        return False


def picture(blobs: Blobs, path: Path) -> Image:
    """Put it on record. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise ConfigError(f"{path} is too large for a model: the limit is {LARGEST:,} bytes")
    kind = _kind(data)
    if kind is None:
        raise ConfigError(f"{path} is no picture a model can look at; it takes PNG, JPEG, GIF and WebP")
    return Image(mime=kind, blob=blobs.put(data))


def _kind(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
