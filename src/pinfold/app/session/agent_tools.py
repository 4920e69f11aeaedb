"""What sub-agents are started with: tasks from code, definitions in `.agents/agents`, budgets; and their tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct, ValidationError, field
from msgspec.structs import replace

from pinfold.app.errors import ConfigError
from pinfold.app.models.session_models import CallOptions
from pinfold.app.paths import config_dir, read_limited
from pinfold.app.trust.project_formats import AGENTS, AgentDefinition, parse_agent
from pinfold.engine import Budget, Spent, State
from pinfold.events import BadEvent, Json, Usage, convert, parse_json
from pinfold.model import FILES, Access, ModelRef, UnknownModel, parse_model_name
from pinfold.text import cap_text, first_line
from pinfold.tools import AnyTool, BadCall, tool

N = TypeVar("N", int, float)
SERVER = "agents"
START = "agents.start"
"""The name the guest calls to start sub-agents; no tool has it."""
AT_ONCE = 4
MOST = 16
"""Most tasks in one call."""
WRAP_UP_AT = 0.8
"""Share of its budget after which a sub-agent is told to end."""
_FILE_BYTES = 64 << 10
_BRIEF = 20_000
_RECORDED = 4000
"""Longest answer in the parent session's log, in characters; the sub-agent's log holds all of it."""
_WORDS = 120
AgentStatus: TypeAlias = Literal["done", "partial", "out_of_budget", "failed"]


class AgentBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: int | None = None
    cost: float | None = None
    steps: int | None = None
    seconds: float | None = None


class AgentTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    brief: str
    give: tuple[str, ...] | None = None
    """Variables it sees; None for all."""
    keep: tuple[str, ...] = ()
    """Variables it is to bring back."""
    budget: AgentBudget | int | None = None
    """A plain number counts tokens."""
    model: str = ""
    agent: str = ""
    """The name of a definition; empty for none."""
    name: str = ""
    read_only: bool = False
    """True if it must not change files of the workspace."""


class AgentRun(Struct, kw_only=True):
    """The state of one sub-agent while it runs, and its result."""

    name: str
    session: str
    keep: tuple[str, ...] = ()
    folder: str = ""
    """Folder inside the sandbox where it stores the variables it keeps."""
    status: AgentStatus = "failed"
    answer: str = ""
    why: str = ""
    files: list[str] = field(default_factory=list[str])
    conflicts: list[str] = field(default_factory=list[str])
    usage: Usage = Usage()
    cost: float | None = None
    steps: int = 0
    untrusted: bool = False

    def to_json(self) -> dict[str, Json]:
        names = ("name", "session", "status", "answer", "why", "files", "conflicts", "folder")
        fields: dict[str, Json] = {name: getattr(self, name) for name in names}
        usage = {"tokens": self.usage.total, "cost": self.cost, "steps": self.steps}
        return {**fields, "keep": list(self.keep), "usage": usage}

    def to_record(self) -> dict[str, Json]:
        """Return the record for the log."""
        names = ("name", "session", "status", "why", "files", "conflicts")
        answer = cap_text(self.answer, _RECORDED)
        return {**{name: getattr(self, name) for name in names}, "answer": answer, "line": self.line()}

    def line(self) -> str:
        """Describe the run in one line, for the user."""
        steps = f"{self.steps} step{'' if self.steps == 1 else 's'}"
        why = f" ({self.why})" if self.why else ""
        return f"{self.name}: {self.status}, {steps}, {self.usage.total:,} tokens{why}"


def runs_in(observation: str) -> list[dict[str, Json]]:
    """Read the record of one call: name, session, status, answer, line of each sub-agent. Empty if it is not one."""
    try:
        records = convert(parse_json(observation), list[dict[str, Json]])
    except (BadEvent, ValidationError):
        return []
    return [one for one in records if {"name", "session", "status", "line"} <= one.keys()]


def read_tasks(given: Mapping[str, Json]) -> list[AgentTask]:
    """Parse and check the tasks of a call. Raises BadCall."""
    try:
        tasks = convert(given.get("tasks"), list[AgentTask])
    except ValidationError as error:
        raise BadCall(
            f"not a task for a sub-agent: {error}; give brief, and if needed give, keep, budget, model or agent"
        ) from error
    if not 1 <= len(tasks) <= MOST:
        raise BadCall(f"{len(tasks)} tasks were given; give 1 to {MOST}")
    for task in tasks:
        if not task.brief.strip() or len(task.brief) > _BRIEF:
            raise BadCall(f"a brief says what to do, in 1 to {_BRIEF:,} characters; this has {len(task.brief):,}")
        if wrong := [name for name in (*task.keep, *(task.give or ())) if not name.isidentifier()]:
            raise BadCall(f"{wrong[0]!r} is not the name of a variable")
    return tasks


def check_model(name: str, own: str, calling: CallOptions) -> None:
    """Check a model that code names. Its provider is sent the task, so the user must have chosen that provider.

    `own`: the model of the session. Raises BadCall.
    """
    if not name or name in (own, *calling.aliases, *calling.fallback, calling.escalate):
        return
    access = Access(aliases=calling.aliases)
    try:
        meant = parse_model_name(name, access)
        if meant.provider == "builtin" or _are_in_one_place(parse_model_name(own, access), meant):
            return
    except UnknownModel as error:
        raise BadCall(f"a sub-agent cannot have the model {name!r}: {error}") from error
    raise BadCall(
        f"a sub-agent cannot have the model {name!r}: choose one of this session's provider, builtin, or one that "
        "the user named in [models] or in the description of a sub-agent"
    )


def _are_in_one_place(own: ModelRef, meant: ModelRef) -> bool:
    if own.provider in FILES:  # scripts in the same folder count as one place
        return own.provider == meant.provider and Path(own.model).parent == Path(meant.model).parent
    return (own.provider, own.url) == (meant.provider, meant.url)


def budget_of(task: AgentTask, parent: Budget, state: State) -> Budget:
    """Return the budget of a task, never more than its parent has left."""
    asked = AgentBudget(tokens=task.budget) if isinstance(task.budget, int) else task.budget or AgentBudget()
    turn = state.turn
    spent = Spent(tokens=turn.usage.total if turn else 0, cost=turn.cost if turn else 0.0)
    limits = [(parent.max_tokens, parent.max_cost, spent)]
    limits.append((parent.session_tokens, parent.session_cost, Spent(tokens=state.usage.total, cost=state.cost)))
    tokens = [most - used.tokens for most, _, used in limits if most is not None]
    costs = [most - (used.cost or 0.0) for _, most, used in limits if most is not None]
    return replace(
        parent,
        max_steps=min(asked.steps or parent.max_steps, parent.max_steps),
        max_tokens=_least(asked.tokens, *tokens),
        max_cost=_least(asked.cost, *costs),
        max_seconds=_least(asked.seconds, parent.max_seconds),
        session_tokens=None,
        session_cost=None,
    )


def _least(*limits: N | None) -> N | None:
    known = [limit for limit in limits if limit is not None]
    return max(min(known), type(known[0])(0)) if known else None


def share_of(budget: Budget, share: float, *, spent: Spent = Spent(), steps: int = 0, wraps_up: bool = False) -> Budget:
    """Return this share of each limit, less what is `spent` already; at least one step.

    `wraps_up`: of the time, only what is kept for the last turn.
    """

    def part(limit: N | None, used: float) -> N | None:
        return None if limit is None else type(limit)(max(0, limit * share - used))

    return replace(
        budget,
        max_steps=max(1, round(budget.max_steps * share) - steps),
        max_tokens=part(budget.max_tokens, spent.tokens),
        max_cost=part(budget.max_cost, spent.cost or 0.0),
        max_seconds=budget.max_seconds and budget.max_seconds * (1 - WRAP_UP_AT if wraps_up else share),
    )


def load_definitions(obeyed: Mapping[str, bytes]) -> dict[str, AgentDefinition]:
    """Load the user's definitions and the workspace's trusted ones; the workspace's win on the same name."""
    files = _load_user_files()
    files += [(name, data) for name, data in obeyed.items() if name.startswith(f"{AGENTS}/") and name.endswith(".md")]
    found = [parse_agent(Path(name).stem, data) for name, data in files]
    return {one.name: one for one in found}


def _load_user_files() -> list[tuple[str, bytes]]:
    folder = config_dir() / "agents"
    found: list[tuple[str, bytes]] = []
    for path in sorted(folder.glob("*.md")) if folder.is_dir() else ():
        with suppress(OSError, ConfigError):  # a definition that cannot be read counts as absent
            found.append(
                (path.name, read_limited(path, _FILE_BYTES, "is too large for the description of a sub-agent"))
            )
    return found


def describe_definitions(definitions: Iterable[AgentDefinition]) -> str:
    """List the definitions in one line for the model; empty if there are none."""
    named = [
        f"{one.name} ({first_line(one.description, _WORDS)})" if one.description else one.name for one in definitions
    ]
    return f"Sub-agents for agents.run(brief, agent=NAME): {'; '.join(named)}\n" if named else ""


def agent_tools() -> list[AnyTool]:
    """Return the tools of `agents`. A direct call by the model becomes a cell that calls the tool: see `code_for`."""

    async def run(  # noqa: PLR0917 - what code may give by name
        brief: str,
        give: list[str] | None = None,
        keep: list[str] | None = None,
        budget: dict[str, float] | None = None,
        model: str = "",
        agent: str = "",
        name: str = "",
    ) -> str:
        """Have a sub-agent do a task on a fork of this session: it has the variables and files as they are now.

        Its result has status, answer, variables, files and usage. In code: `result = agents.run(brief, keep=["df"])`.

        Args:
            brief: What it is to do and to bring back, complete in itself.
            give: Names of the variables it sees; all unless given.
            keep: Names of the variables it is to set and bring back.
            budget: Limits by tokens, cost, steps or seconds.
            model: Another model.
            agent: The name of a sub-agent that is described.
            name: What it is called.
        """
        asked = (brief, give, keep, budget, model, agent, name)
        raise BadCall(f"call it from code: agents.run({asked[0][:20]!r}, ...)")

    async def gather(tasks: list[Json]) -> str:
        """Have several sub-agents work at once, each as with `run`: every task is a brief, or an object of what `run` takes."""
        raise BadCall(f"call it from code: agents.gather({str(tasks)[:20]}...)")

    as_tool = tool(effect="once", reach="nothing")
    made: list[AnyTool] = [as_tool(run), as_tool(gather)]
    return [replace(one, name=f"{SERVER}.{one.name}", server=SERVER) for one in made]


def code_for(name: str, args: Mapping[str, Json]) -> str | None:
    """Return the cell that stands for a model's call; None for other tools."""
    match name:
        case "agents.run":
            return (
                f"agent_result = agents.run(**{dict(args)!r})\nglobals().update(agent_result.variables)\nagent_result"
            )
        case "agents.gather":
            return f"agent_results = agents.gather({args.get('tasks')!r})\nagent_results"
        case _:
            return None
