"""How a session is opened, and where it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from pinfold.app.models.session_models import CallOptions
from pinfold.app.session.answers import AnswerForm
from pinfold.app.session.toolbox import ToolOptions
from pinfold.app.trust.instructions import Instruction
from pinfold.engine import Budget, Hooks, Model
from pinfold.events import Json, Mode, TurnId
from pinfold.sandbox import Limits, Mount, Provider


class Options(Struct, frozen=True, kw_only=True):
    """How to open a session. What is None is taken from the session's own past, else from the defaults."""

    workspace: Path | None = None
    model: str | Model | None = None
    mode: Mode | None = None
    sandbox: str | Provider | None = None
    title: str | None = None
    data: Mapping[str, Path] | None = None
    """Read-only mounts by name."""
    allow_unmasked: bool = False
    """A sandbox that cannot hide the workspace's secrets may show them."""
    packages: tuple[str, ...] = ()
    """What the environment of the cells has beyond the usual."""
    make_environment: bool = False
    """Build it if it is missing, rather than go on without and say so."""
    python: str = ""
    """Runs the cells instead of an environment's."""
    limits: Limits = field(default_factory=Limits)
    mounts: tuple[Mount, ...] | None = None
    budget: Budget = field(default_factory=Budget)
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    calling: CallOptions = field(default_factory=CallOptions)
    """How models are called."""
    view: Path | None = None
    """Where what it changes in the workspace goes instead."""
    tools: tuple[Callable[..., Any], ...] = ()
    """What the user hands over in person."""
    toolbox: ToolOptions = field(default_factory=ToolOptions)
    instructions: tuple[Instruction, ...] = ()
    """What the model is told on the user's and the project's behalf, outermost first."""
    hooks: Hooks = field(default_factory=Hooks)
    git_checkpoints: bool | None = None
    answer_schema: Json = None
    """Every answer is JSON that is valid against it, or the turn fails."""
    unattended: bool = True
    notices: tuple[str, ...] = ()

    @property
    def form(self) -> AnswerForm | None:
        return None if self.answer_schema is None else AnswerForm(self.answer_schema)


class SessionStatus(Struct, frozen=True, kw_only=True):
    """Where a session stands, for a front end that joins it."""

    seq: int
    """Subscribe after this to see what is new."""
    turn: TurnId | None = None
    """The last turn, if there was one."""
    end: Literal["open", "ended", "interrupted", "failed"] | None = None
    """How it ended; `open` while it runs or if it was cut off."""
    model: str = ""
    mode: Mode = "auto"
    sandbox: str = ""
    """Its name, once it is known; `auto` until then."""
    title: str = ""
    context: int = 0
    """Tokens the model can take, if anybody says."""
    no_model: str | None = None
    """Why a turn could not be had, if so."""
    workspace: str = ""
    data: dict[str, str] = field(default_factory=dict[str, str])
    mounts: dict[str, bool] = field(default_factory=dict[str, bool])
    outside: str = ""
    """The session, if it has read others' words."""
