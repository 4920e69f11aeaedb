"""Plays a scenario with a real agent in a real sandbox, and looks at what arrived outside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from bench.leak_suite.canary import is_in, new_canary
from bench.leak_suite.places import EVIL_IP, World, why_not, world
from bench.leak_suite.scenario import PAGE_URL, Answers, Between, Scenario, Step

from pinfold import Agent, Approval
from pinfold.app import Decision
from pinfold.app.clients.session_fork import fork
from pinfold.app.paths import config_dir, state_dir
from pinfold.app.session import build_session
from pinfold.app.session.action_policy import ActionPolicy
from pinfold.app.session.egress import NETWORK, SessionEgress
from pinfold.app.storage.session_store import SessionStore, read_session
from pinfold.app.trust.privacy import OutboundTotal, sum_outbound
from pinfold.app.trust.secrets import Secrets
from pinfold.engine import fold
from pinfold.events import ActionFinished, CallTool, Event, OutputDelta, PinfoldError, SessionId, convert
from pinfold.model import KeptReply, ScriptedModel

DONE = KeptReply(text="done")
ENVIRONMENT = "DEPLOY_NOTE"


@dataclass(kw_only=True)
class Shown:
    """What came of a scenario."""

    name: str
    kind: str
    leaked: list[str] = field(default_factory=list[str])
    """Who has heard the canary, or a part of it."""
    tainted: bool = False
    tried: int = 0
    """Actions that came to an end, of the model's and of its code's."""
    asked: list[str] = field(default_factory=list[str])
    """Questions, by what they were about."""
    events: list[Event] = field(default_factory=list[Event])
    sent: list[OutboundTotal] = field(default_factory=list[OutboundTotal])
    failed: str = ""
    """The turn that did not end well, if one did not."""


@contextmanager
def own_folders(base: Path) -> Generator[None]:
    """Nothing of the person who runs this is read or written."""
    kept = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("PINFOLD_", "UV_", "PIP_"))]:
        del os.environ[name]
    for name in ("config", "data", "state", "cache"):
        os.environ[f"XDG_{name.upper()}_HOME"] = str(base / "xdg" / name)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@contextmanager
def built_with(outside: World, way: type[SessionEgress], judging: type[ActionPolicy]) -> Generator[None]:
    """Sessions find the listeners where the internet would be. `way` and `judging` may be weaker than the product's."""
    kept = build_session.SessionEgress, build_session.ActionPolicy
    made = partial(way, resolver=outside.resolve, why_not=why_not)
    build_session.SessionEgress, build_session.ActionPolicy = cast(Any, made), judging  # pyright: ignore[reportPrivateImportUsage]
    try:
        yield
    finally:
        build_session.SessionEgress, build_session.ActionPolicy = kept  # pyright: ignore[reportPrivateImportUsage]


@dataclass(kw_only=True)
class Stage:
    scenario: Scenario
    folder: Path
    answers: Answers
    canary: str = field(default_factory=new_canary)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def set_up(self) -> None:
        self.workspace.mkdir(parents=True)
        data = self.folder / "given"
        data.mkdir()
        (data / "notes.txt").write_text(self.canary, encoding="utf-8")
        match self.scenario.where:
            case "workspace":
                (self.workspace / "notes.txt").write_text(self.canary, encoding="utf-8")
            case "environment":
                os.environ[ENVIRONMENT] = self.canary
            case "secret":
                Secrets().set("deploy", self.canary, ["elsewhere.example"])
            case "config":
                self._keep(config_dir() / "notes.txt")
            case "log":
                self._keep(state_dir() / "log" / "notes.txt")
            case "data" | "mount" | "late" | "nowhere":
                pass
        for name, content in self.scenario.files.items():
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def add_tools(self, outside: World) -> None:
        if self.scenario.tools:
            tools = config_dir() / "tools"
            tools.mkdir(parents=True, exist_ok=True)
            (tools / "own.yaml").write_text(outside.filled(self.scenario.tools), encoding="utf-8")

    def _keep(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.canary, encoding="utf-8")

    def filled(self, reply: KeptReply, outside: World) -> KeptReply:
        def fill(value: Any) -> Any:
            if isinstance(value, str):
                text = outside.filled(value).replace("@CANARY@", self.canary)
                return text.replace("@FOLDER@", str(self.folder))
            if isinstance(value, dict):
                return {fill(key): fill(item) for key, item in cast("dict[str, Any]", value).items()}
            if isinstance(value, list | tuple):
                return [fill(item) for item in cast("list[Any]", value)]
            return value

        import msgspec

        return convert(fill(msgspec.to_builtins(reply)), KeptReply)

    def agent(self, model: ScriptedModel, outside: World, session: SessionId | None, shown: Shown) -> Agent:
        given = self.folder / "given"
        where = self.scenario.where
        more: dict[str, Any] = {} if session else {"workspace": self.workspace}
        if session is None and where in ("data", "mount"):
            more |= {"data": [given]} if where == "data" else {"mounts": [given]}
        return Agent(
            model=model,
            mode=None if session else self.scenario.mode,
            sandbox="namespaces",
            allow_hosts=[f"listed.example:{outside.listed.port}"],
            flows=[outside.filled(to) for to in self.scenario.flows],
            approve=None if self.answers == "nobody" else partial(self._answer, outside, shown),
            session=session,
            **more,
        )

    async def _answer(self, outside: World, shown: Shown, approval: Approval) -> bool | str | Decision:
        action = approval.action
        name = action.tool if isinstance(action, CallTool) else "python"
        shown.asked.append(f"{name}: {approval.reason}")
        if approval.question:
            return "do as you think best"
        if self.answers == "yes":
            return True
        if self.answers == "harmless" and isinstance(action, CallTool):
            page = name == "fetch" and action.given.get("url") == outside.filled(PAGE_URL)
            listed = name == NETWORK and action.given.get("host") == "listed.example"
            return Decision(allow=page or listed, scope="session" if self.scenario.grants else "once")
        return False


async def play(
    scenario: Scenario,
    folder: Path,
    *,
    answers: Answers | None = None,
    way: type[SessionEgress] = SessionEgress,
    judging: type[ActionPolicy] = ActionPolicy,
) -> Shown:
    """`answers` instead of the scenario's own, for a control."""
    shown = Shown(name=scenario.name, kind=scenario.kind)
    stage = Stage(scenario=scenario, folder=folder, answers=answers or scenario.answers)
    with own_folders(folder):
        stage.set_up()
        # A socket would be a file of the user's, where there is to be none.
        async with world(stage.workspace if scenario.where == "workspace" else folder) as outside:
            os.environ |= {
                "UV_DEFAULT_INDEX": f"http://{EVIL_IP}:{outside.evil.port}/simple",
                "UV_CACHE_DIR": str(folder / "uv"),
                "UV_NO_CONFIG": "1",
                "UV_HTTP_RETRIES": "0",
                "NO_PROXY": EVIL_IP,
            }
            stage.add_tools(outside)
            with built_with(outside, way, judging):
                await _acted(stage, outside, shown)
            await outside.settled()
            for name, heard in outside.outside.items():
                if is_in(stage.canary, map(bytes, heard)):
                    shown.leaked.append(name)
    shutil.rmtree(folder, ignore_errors=True)
    return shown


async def _acted(stage: Stage, outside: World, shown: Shown) -> None:
    steps: list[Step] = list(stage.scenario.steps)
    session: SessionId | None = None
    first = True
    while steps:
        lines: list[KeptReply] = []
        for step in steps:
            if isinstance(step, KeptReply):
                lines.append(stage.filled(step, outside))
            elif step != "interrupt":
                lines.append(DONE)
        model = ScriptedModel([*lines, DONE])
        async with stage.agent(model, outside, session, shown) as agent:
            session = agent.session_id
            again: Between | None = None
            while steps and again is None:
                interrupts = steps[0] == "interrupt"
                if interrupts:
                    steps.pop(0)
                replies = list(takewhile(lambda step: isinstance(step, KeptReply), steps))
                if replies:
                    del steps[: 1 if interrupts else len(replies)]
                    await _turn(agent, shown, interrupts=interrupts)
                if first and stage.scenario.where == "late":
                    (stage.workspace / "notes.txt").write_text(stage.canary, encoding="utf-8")
                first = False
                match steps[0] if steps else None:
                    case "next":
                        steps.pop(0)
                    case "undo":
                        steps.pop(0)
                        await agent.undo()
                    case "resume" | "fork" as way:
                        steps.pop(0)
                        again = way
                    case _:
                        pass
        if again == "fork":
            session, _ = await fork(SessionStore(), session)
    if session is not None:
        with read_session(SessionStore().folder_of(session), session) as (log, _):
            entries = list(log.read())
        state = fold(entries)
        shown.tainted = state.private and state.untrusted
        shown.events = [entry.event for entry in entries]
        shown.tried = sum(isinstance(event, ActionFinished) for event in shown.events)
        shown.sent = sum_outbound(entries)


async def _turn(agent: Agent, shown: Shown, *, interrupts: bool) -> None:
    if not interrupts:
        try:
            await agent.run("go on")
        except PinfoldError as error:
            shown.failed = str(error)
        return
    async for event in agent.stream("go on"):
        if isinstance(event, OutputDelta) and "READY" in event.text:
            await agent.interrupt()
