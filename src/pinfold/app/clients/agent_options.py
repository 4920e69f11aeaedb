"""From the arguments of `Agent`, plan the session to open. Reads configuration and folders; opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.session.egress import FLOW_HOSTS, FLOW_TOOLS
from pinfold.app.session.options import Options, check_paths, mounts_of, new_session_options, resume_options
from pinfold.app.storage.session_store import SessionStore
from pinfold.engine import Hooks
from pinfold.events import SessionId
from pinfold.sandbox import parse_named_paths

_FLAGS = {
    "run.mode": "mode",
    "run.max_steps": "max_steps",
    "run.guards": "guards",
    "run.imports": "imports",
    "checkpoint.git": "git_checkpoints",
    "limits.output_bytes": "output_bytes",
    "limits.output_lines": "output_lines",
    "limits.output_tokens": "output_tokens",
}
"""Configuration keys that arguments of Agent set."""


class SessionPlan(Struct, frozen=True, kw_only=True):
    """Which session an agent opens, and how."""

    session: SessionId
    folder: Path | None
    """None for an ephemeral session."""
    options: Options


def keep_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all but `self`, with iterators as tuples, so that they can be read more than once."""
    return {
        name: tuple(cast("Iterable[Any]", value)) if isinstance(value, Iterator | list) else value
        for name, value in given.items()
        if name != "self"
    }


def plan_session(given: Mapping[str, Any], hooks: Hooks, new: SessionId | None) -> SessionPlan:
    """Plan the session from the arguments of Agent. `new` is the id of a new session. Raises PinfoldError."""
    model, sandbox, api_key = given["model"], given["sandbox"], given["api_key"]
    place = None if given["workspace"] is None else Path(given["workspace"])
    data, added = check_paths(parse_named_paths(given["data"])), given["packages"]
    flags = {key: given[name] for key, name in _FLAGS.items()} | {
        "model.name": model if isinstance(model, str) else None,
        "sandbox.provider": sandbox if isinstance(sandbox, str) else None,
        "network.allow": given["allow_hosts"] or None,
        "tools.disable": given["tools_off"] or None,
        FLOW_HOSTS: given["flows"],
        FLOW_TOOLS: given["flows"],
    }
    if new is None:
        id_, folder = SessionStore().find(given["session"])
        options = resume_options(id_, folder, place, flags)
    else:
        id_, folder = new, None if given["ephemeral"] else SessionStore().folder_of(new)
        options = new_session_options(id_, place, flags)
    if given["mcp"] is not None:
        from pinfold.app.session.mcp.files import read_extra_servers

        options = replace(options, toolbox=replace(options.toolbox, more_mcp=read_extra_servers(given["mcp"])))
    options = replace(
        options,
        limits=given["limits"] or options.limits,
        model=options.model if model is None or isinstance(model, str) else model,
        sandbox=options.sandbox if sandbox is None or isinstance(sandbox, str) else sandbox,
        calling=options.calling if api_key is None else options.calling.with_key(str(model), api_key),
        packages=(*options.packages, *added),
        make_environment=bool(added),
        settings={**options.settings, **(given["settings"] or {})},
        data=data or None,
        mounts=mounts_of(given["mounts"]) or None,
        tools=given["tools"],
        hooks=hooks,
        unattended=given["approve"] is None,
    )
    return SessionPlan(session=id_, folder=folder, options=options)
