"""From configuration to the options of a session: a new one, or one that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pinfold.app.config.databases import keep_passwords
from pinfold.app.config.layers import Loaded, RunConfig, load_config
from pinfold.app.errors import ConfigError
from pinfold.app.models.session_models import CallOptions
from pinfold.app.paths import default_workspace, refuse_closed_folders, suggest_path, workspace_at
from pinfold.app.session.egress import FLOW_HOSTS, FLOW_TOOLS, Flows
from pinfold.app.session.live_session import Options, is_imported
from pinfold.app.session.observations import OutputLimits
from pinfold.app.session.toolbox import ToolOptions
from pinfold.app.trust.instructions import instructions
from pinfold.app.trust.project_files import SERVERS, TOOLS
from pinfold.app.trust.secrets import hide_process_secrets, secrets_in
from pinfold.engine import Budget
from pinfold.events import SessionId
from pinfold.log import summarise
from pinfold.policy import Guards, strict
from pinfold.text import keep_own_secret


def new_session_options(session: SessionId, workspace: Path | None, flags: Mapping[str, Any]) -> Options:
    """For a session that begins: flags over environment over files over defaults."""
    if workspace is not None:
        folder, notice = workspace_at(workspace), None
    else:
        folder, notice = default_workspace(session)
    loaded = _load_config(folder, flags)
    config = loaded.config
    return Options(
        workspace=folder,
        model=config.model.name,
        mode=config.run.mode,
        sandbox=config.sandbox.provider,
        git_checkpoints=config.checkpoint.git,
        **_instruction_options(loaded, folder, notice),
        **_limit_options(loaded, flags),
    )


def resume_options(session: SessionId, folder: Path, workspace: Path | None, flags: Mapping[str, Any]) -> Options:
    """For a session that goes on: it keeps its own model, mode, sandbox and workspace unless a flag says otherwise.

    One that was imported has nothing of its own yet.
    """
    if is_imported(folder):
        return new_session_options(session, workspace, flags)
    place = workspace_at(workspace) if workspace is not None else None
    summary = summarise(folder)
    known = Path(summary.workspace) if summary and summary.workspace else None
    loaded = _load_config(place or known, flags)
    return Options(
        workspace=place,
        model=flags.get("model.name"),
        mode=flags.get("run.mode"),
        sandbox=flags.get("sandbox.provider"),
        git_checkpoints=flags.get("checkpoint.git"),
        **_instruction_options(loaded, place or known),
        **_limit_options(loaded, flags),
    )


def check_paths(paths: Mapping[str, Path]) -> Mapping[str, Path]:
    """Paths to mount, or ConfigError: each is there, and none has to do with Pinfold's own files."""
    for path in paths.values():
        if not path.exists():
            hint = suggest_path(path) or "is the path right?"
            raise ConfigError(f"{path} does not exist, so it cannot be mounted as data; {hint}")
        refuse_closed_folders(path.resolve())
    return paths


def _load_config(workspace: Path | None, flags: Mapping[str, Any]) -> Loaded:
    """The configuration; from here on, nothing that is shown holds a secret this process knows."""
    loaded = load_config(workspace, {key: value for key, value in flags.items() if key not in (FLOW_HOSTS, FLOW_TOOLS)})
    hide_process_secrets()
    return loaded


def _guards(run: RunConfig) -> Guards:
    guards = strict() if run.guards == "strict" else Guards()
    return guards if run.imports is None else replace(guards, imports=frozenset(run.imports))


def _instruction_options(loaded: Loaded, workspace: Path | None, notice: str | None = None) -> dict[str, Any]:
    """What the model is told by files, and what the user is told of those it is not."""
    wanted, said = instructions(workspace, loaded.obeyed)
    return {"instructions": wanted, "notices": tuple(filter(None, (notice, loaded.notice, *said)))}


def _limit_options(loaded: Loaded, flags: Mapping[str, Any]) -> dict[str, Any]:
    config = loaded.config
    run, long = config.run, config.budget
    budget = Budget(
        max_steps=run.max_steps,
        max_tokens=run.max_tokens,
        max_cost=run.max_cost,
        max_seconds=run.max_seconds,
        session_tokens=long.session_tokens,
        session_cost=long.session_cost,
        day_tokens=long.day_tokens,
        day_cost=long.day_cost,
    )
    sandbox = config.sandbox
    calling = CallOptions.of(config, loaded.keys())
    keep_passwords(config.data)
    keep_own_secret(*secrets_in(calling.keys), calling.keys.get(calling.key_env, ""))
    return {
        "limits": sandbox.limits(config.limits),
        "packages": sandbox.packages,
        "python": sandbox.python,
        "budget": budget,
        "settings": config.model.settings(),
        "calling": calling,
        "toolbox": ToolOptions(
            enable=config.tools.enable,
            disable=config.tools.disable,
            hosts=config.network.allow,
            flows=Flows.from_flags(flags),
            output=OutputLimits(
                output_bytes=config.limits.output_bytes,
                output_lines=config.limits.output_lines,
                output_tokens=config.limits.output_tokens,
            ),
            guards=_guards(config.run),
            declared=tuple((name, data) for name, data in loaded.obeyed.items() if name.startswith(f"{TOOLS}/")),
            mcp=loaded.obeyed.get(SERVERS),
            data=config.data,
        ),
    }
