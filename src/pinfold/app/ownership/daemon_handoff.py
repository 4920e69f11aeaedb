"""Handing a session to `pinfold up`, which then owns it: what must travel, and what cannot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pinfold.app.errors import ConfigError, OwnerGone, SessionBusy
from pinfold.app.models.session_models import CallOptions
from pinfold.app.ownership.ipc import send_request
from pinfold.app.paths import up_dir
from pinfold.app.session.live_session import Options
from pinfold.app.session.toolbox import ToolOptions
from pinfold.app.trust.instructions import Instruction
from pinfold.engine import Budget
from pinfold.events import Json, Mode, NotPlain, SessionId, plain_json
from pinfold.model import full_name
from pinfold.sandbox import Limits, Mount

_ANSWER_S = 30.0
"""A long log takes its time to be read."""


def daemon_socket() -> Path:
    return up_dir() / "up.sock"


class PortableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options without what only lives in one process: models, sandboxes and tools that are objects, and hooks."""

    workspace: str | None
    model: str | None
    mode: Mode | None
    sandbox: str | None
    title: str | None
    data: dict[str, str] | None
    mounts: dict[str, bool] | None
    allow_unmasked: bool
    packages: tuple[str, ...]
    python: str
    limits: Limits
    budget: Budget
    settings: dict[str, Any]
    calling: CallOptions
    unattended: bool
    notices: tuple[str, ...]
    git_checkpoints: bool | None = None
    toolbox: ToolOptions = ToolOptions()
    answer_schema: Any = None
    instructions: tuple[Instruction, ...] = ()

    def options(self) -> Options:
        return Options(
            workspace=None if self.workspace is None else Path(self.workspace),
            model=self.model,
            mode=self.mode,
            sandbox=self.sandbox,
            title=self.title,
            data=None if self.data is None else {name: Path(path) for name, path in self.data.items()},
            mounts=None
            if self.mounts is None
            else tuple(Mount(path=Path(path), writable=yes) for path, yes in self.mounts.items()),
            allow_unmasked=self.allow_unmasked,
            packages=self.packages,
            python=self.python,
            limits=self.limits,
            budget=self.budget,
            settings=self.settings,
            calling=self.calling,
            unattended=self.unattended,
            notices=self.notices,
            git_checkpoints=self.git_checkpoints,
            toolbox=self.toolbox,
            answer_schema=self.answer_schema,
            instructions=self.instructions,
        )


def encode_options(options: Options) -> Mapping[str, Json] | None:
    """As plain data; None if some of it cannot leave this process."""
    if not isinstance(options.model, str | None) or not isinstance(options.sandbox, str | None):
        return None
    if options.tools or not options.hooks.is_empty:
        return None
    words = PortableOptions(
        workspace=None if options.workspace is None else str(options.workspace),
        model=None if options.model is None else full_name(options.model),
        mode=options.mode,
        sandbox=options.sandbox,
        title=options.title,
        data=None if options.data is None else {name: str(path) for name, path in options.data.items()},
        mounts=None if options.mounts is None else {str(mount.path): mount.writable for mount in options.mounts},
        allow_unmasked=options.allow_unmasked,
        packages=options.packages,
        python=options.python,
        limits=options.limits,
        budget=options.budget,
        settings=dict(options.settings),
        calling=options.calling,
        unattended=options.unattended,
        notices=options.notices,
        git_checkpoints=options.git_checkpoints,
        toolbox=options.toolbox,
        answer_schema=options.answer_schema,
        instructions=options.instructions,
    )
    plain = msgspec.to_builtins(words)
    try:
        plain_json(plain)
    except NotPlain:
        return None
    return plain


async def hand_over(folder: Path, session: SessionId, options: Options) -> int | None:
    """Ask `pinfold up` to own the session: the last event before it did. None if it does not run or cannot.

    Raises what opening the session raises there.
    """
    if not daemon_socket().exists():
        return None
    words = encode_options(options)
    if words is None:
        return None
    question: Json = {"op": "own", "session": session, "folder": str(folder), "options": dict(words)}
    try:
        answer = await send_request(daemon_socket(), question, "pinfold up", _ANSWER_S)
    except OwnerGone:
        return None
    match answer:
        case {"began": int(began)}:
            return began
        case {"refused": str(reason), "code": int(code)}:
            if code == SessionBusy.exit_code:
                return None  # someone was faster; work through them
            raise ConfigError(reason)
        case _:
            return None
