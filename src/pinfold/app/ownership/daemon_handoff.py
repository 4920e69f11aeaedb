"""Hand a session over to `pinfold up`, which then owns it: which options can be sent, and which cannot."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from pinfold.app.errors import ConfigError, OwnerGone, SessionBusy
from pinfold.app.ownership.ipc import send_request
from pinfold.app.paths import up_dir
from pinfold.app.session.options import Options
from pinfold.events import Json, NotPlain, SessionId, convert, plain_json
from pinfold.model import full_name

_ANSWER_S = 30.0
"""Long, because opening a session reads its whole log."""


def daemon_socket() -> Path:
    return up_dir() / "up.sock"


_LOCAL = ("tools", "hooks", "view", "make_environment")
"""Options that stay in this process."""
_TYPES: Mapping[str, Any] = {field.name: field.type for field in fields(Options) if field.name not in _LOCAL} | {
    "model": str | None,
    "sandbox": str | None,
}
"""Options that are sent. Models and sandboxes are sent by name only."""


def encode_options(options: Options) -> dict[str, Json] | None:
    """Return the options as plain data; None if some cannot leave this process."""
    if not isinstance(options.model, str | None) or not isinstance(options.sandbox, str | None):
        return None
    if options.tools or not options.hooks.is_empty:
        return None
    named = replace(options, model=None if options.model is None else full_name(options.model))
    with suppress(NotPlain, TypeError):
        plain = {name: msgspec.to_builtins(getattr(named, name), enc_hook=_encode_path) for name in _TYPES}
        plain_json(plain)
        return plain
    return None


def decode_options(plain: Json) -> Options:
    """Decode sent options. Raises msgspec.ValidationError, also for options of another version."""
    given = convert(plain, dict[str, Json])
    if given.keys() != _TYPES.keys():
        raise msgspec.ValidationError(f"other options: {', '.join(sorted(given.keys() ^ _TYPES.keys()))}")
    return Options(**{name: convert(given[name], kind, dec_hook=_decode_path) for name, kind in _TYPES.items()})


def _encode_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r} lives in this process only")


def _decode_path(kind: type, value: object) -> object:
    return kind(value)


async def hand_over(folder: Path, session: SessionId, options: Options) -> int | None:
    """Ask `pinfold up` to own the session; return its last event before that. None if none runs or it cannot.

    Raises ConfigError if opening the session fails there.
    """
    if not daemon_socket().exists():
        return None
    words = encode_options(options)
    if words is None:
        return None
    question: Json = {"op": "own", "session": session, "folder": str(folder), "options": words}
    try:
        answer = await send_request(daemon_socket(), question, "pinfold up", _ANSWER_S)
    except OwnerGone:
        return None
    match answer:
        case {"began": int(began)}:
            return began
        case {"refused": str(reason), "code": int(code)}:
            if code == SessionBusy.exit_code:
                return None  # another process was faster; connect to it
            raise ConfigError(reason)
        case _:
            return None
