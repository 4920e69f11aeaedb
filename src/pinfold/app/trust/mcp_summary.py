"""Everything there is to know of a server before it is started, in lines for who decides. Nothing is left out.

Each line is fit to print. What is a secret is not shown, but it is said that it is there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from pinfold.app.trust.mcp_reach import is_sandboxed
from pinfold.app.trust.secrets import secrets_in
from pinfold.text import exact_line, redact
from pinfold.tools.mcp.spec import ServerSpec

_BLANKS = re.compile(r"\s{20,}")
_WORD = re.compile(r"(?:(?:Bearer|Basic|Token) )?[\w+/=.:-]+")
"""What a secret looks like; anything with more to it may be a command, and is shown."""
_SECRET_HEADERS = re.compile(r"authorization|cookie|.*(?:token|key|secret|password)", re.IGNORECASE)


def describe_server(spec: ServerSpec) -> tuple[str, ...]:
    """Its name and how it is reached or started, then a line for each thing it is given."""
    return tuple(map(_line, _lines(spec)))


def _lines(spec: ServerSpec) -> Iterator[str]:
    # Each word by itself: quoted, a key would not be known for one.
    words = (redact(word) for word in (spec.command, *spec.args))
    yield f"{redact(spec.name)}: {redact(spec.url) if spec.url else shlex.join(words)}"
    for name, value in spec.env.items():
        is_secret = bool(secrets_in({name: value}))
        yield f"    env {name}={_value(value, is_secret=is_secret)}"
    for name, value in spec.headers.items():
        is_secret = _SECRET_HEADERS.fullmatch(name) is not None
        yield f"    header {name}: {_value(value, is_secret=is_secret)}"
    if spec.cwd:
        yield f"    starts in {spec.cwd}"
    if spec.oauth:
        known = f", client {spec.oauth.client_id}" if spec.oauth.client_id else ""
        yield f"    signs in by OAuth ({spec.oauth.grant}{known}{f', {spec.oauth.issuer}' if spec.oauth.issuer else ''})"
    if not spec.url:
        yield f"    runs {_place(spec)}"
    if spec.wants:
        yield f"    wants {spec.wants}; to give it that: pinfold mcp trust {spec.name} {spec.gives}"


def _place(spec: ServerSpec) -> str:
    if not is_sandboxed(spec):
        return "on this machine, as you, with all your files and the network"
    files = "may change this folder" if spec.reach == "workspace" else "may read this folder"
    files += " and its own program" if spec.is_confined else ", its own program and the paths it names"
    network = f"may reach {', '.join(spec.hosts)}" if spec.hosts else "has no network"
    return f"in a sandbox of its own: {files}, {network}"


def _value(value: str, *, is_secret: bool) -> str:
    if is_secret and _WORD.fullmatch(value):
        return f"(a secret of {len(value)} characters, not shown)"
    return redact(value)


def _line(text: str) -> str:
    """All of it, with blanks that would push the rest out of sight counted instead."""
    short = _BLANKS.sub(lambda found: f"[{len(found[0]):,} blanks]", text)
    return exact_line(short).replace("\t", "\\t")
