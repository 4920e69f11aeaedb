"""Attachments of a prompt: standard input, files, pictures. The model gets bounded text; the data is mounted whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from pinfold.app.errors import ConfigError
from pinfold.app.ownership.owner import Link
from pinfold.app.paths import explain_errors, private_dir, read_limited
from pinfold.app.session.live_session import LiveSession
from pinfold.events import Image
from pinfold.log import Blobs, blob_id

STDIN = "stdin"
LARGEST = 4 << 30
"""Largest standard input, in bytes."""
_WHOLE = 8000
"""Text up to this many bytes is shown to the model in full."""
_HEAD = 2000
_CHUNK = 1 << 20


class Attachments(msgspec.Struct, frozen=True, kw_only=True):
    words: str
    """Description for the model, added after the prompt."""
    data: Mapping[str, Path]
    pictures: tuple[Path, ...] = ()
    """Pictures the model is shown."""


def collect_attachments(files: Mapping[str, Path], piped: Path | None) -> Attachments:
    """Describe attachments. `files` are by mount name; `piped` is the file that holds standard input."""
    data = {**files, **({STDIN: piped} if piped else {})}
    words = [_describe_attachment("Standard input", STDIN, piped)] if piped else []
    words += [_describe_attachment(f"Attached {name}", name, path) for name, path in files.items()]
    pictures = tuple(path for path in data.values() if is_picture(path))
    return Attachments(words="\n\n".join(words), data=data, pictures=pictures)


def save_stdin(read: Callable[[int], bytes], folder: Path) -> Path | None:
    """Save standard input to a file in `folder`; None if it is empty. Raises ConfigError."""
    first = read(_CHUNK)
    if not first:
        return None
    path = private_dir(folder) / STDIN
    try:
        with path.open("wb") as file:
            size = file.write(first)
            while chunk := read(_CHUNK):
                size += file.write(chunk)
                if size > LARGEST:
                    raise ConfigError(
                        f"standard input is longer than {LARGEST >> 30} GB; write it to a file and give it with --data"
                    )
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ConfigError(f"standard input could not be kept in {path}: {error.strerror}") from error
    return path


def store_pictures(link: Link, folder: Path | None, paths: Iterable[Path]) -> tuple[Image, ...]:
    """Store pictures as blobs of the session, which another process may own. Raises ConfigError."""
    blobs = link.log.blobs if isinstance(link, LiveSession) else Blobs(folder / "blobs" if folder else None)
    return tuple(picture(blobs, path) for path in paths)


def store_picture(link: Link, folder: Path, data: bytes, what: str = "what was sent") -> Image:
    """Store one picture that is not a file. Raises ConfigError."""
    blobs = link.log.blobs if isinstance(link, LiveSession) else Blobs(folder / "blobs")
    return Image(mime=picture_kind(data, what), blob=blobs.put(data))


def loose_picture(data: bytes) -> Image:
    """Return a picture for a model without a session. Raises ConfigError."""
    return Image(mime=picture_kind(data), blob=blob_id(data))


def picture_kind(data: bytes, what: str = "what was sent") -> str:
    """Raises ConfigError."""
    kind = _kind(data)
    if kind is None or len(data) > LARGEST_PICTURE:
        limit = f"PNG, JPEG, GIF and WebP up to {LARGEST_PICTURE >> 20} MB"
        raise ConfigError(f"a model cannot look at {what}; models take {limit}")
    return kind


def _describe_attachment(what: str, name: str, path: Path) -> str:
    place = f"the read-only data {name!r} (its path is listed above)"
    if path.is_dir():
        return f"[{what} is a folder, {place}.]"
    if not path.is_file():  # opening a pipe could block forever
        raise ConfigError(f"{path} is neither a file nor a folder; pipe it in instead")
    with explain_errors(f"{path} cannot be read"), path.open("rb") as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(_WHOLE)
    if _kind(head):
        return f"[{what}: a picture, shown here, and as a file {place}.]"
    if b"\0" in head:
        return f"[{what}: {size:,} bytes, not text, in {place}.]"
    if size <= _WHOLE:
        text = head.decode("utf-8", "replace").rstrip("\n")
        return f"[{what}: {size:,} bytes, all of them here and in {place}:]\n{text}"
    text = head[:_HEAD].decode("utf-8", "ignore")
    return f"[{what}: {size:,} bytes in {place}. It begins:]\n{text}\n[The rest is only there: read it with code.]"


def refuse_reserved_name(files: Iterable[str]) -> None:
    """Refuse the name of standard input for other data. Raises ConfigError."""
    if STDIN in files:
        raise ConfigError("data cannot be called 'stdin' while there is standard input; name it otherwise: NAME=PATH")


LARGEST_PICTURE = 20 << 20
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def is_picture(path: Path) -> bool:
    """True if it has a picture format that models accept."""
    try:
        with path.open("rb") as file:
            return _kind(file.read(12)) is not None
    except OSError:
        return False


def picture(blobs: Blobs, path: Path) -> Image:
    """Store a picture file as a blob. Raises ConfigError."""
    data = read_limited(path, LARGEST_PICTURE, f"is too large for a model: the limit is {LARGEST_PICTURE:,} bytes")
    return Image(mime=picture_kind(data, str(path)), blob=blobs.put(data))


def _kind(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
