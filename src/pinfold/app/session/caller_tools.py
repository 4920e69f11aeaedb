"""Tools that a client runs itself: the model sees them as any other, and a call waits for the client's result.

A call is an open question in the log, so it outlives requests, connections and the process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.app.session.answers import AnswerForm
from pinfold.app.session.build_session import ModelSwitcher
from pinfold.app.session.options import CallerTerms
from pinfold.engine import Core
from pinfold.events import Json, SessionChanged, ToolSchema
from pinfold.tools import AnyTool, BadCall, Tool
from pinfold.tools.arguments import REQUIRED, Argument

SERVER = "client_tools"
PREFIX = "client_"
"""Prefix for a client's tool whose name one of Pinfold's tools has."""


async def set_terms(core: Core, runner: SandboxActionRunner, switching: ModelSwitcher, terms: CallerTerms) -> None:
    """Apply the client's terms until other terms are set."""
    offer_tools(runner, terms.tools)
    if terms.must_call:
        core.form = CallForm(terms.demand)
    else:
        core.form = AnswerForm(terms.answer_schema) if terms.answer_schema is not None else None
    said = "\n\n".join(filter(None, (terms.instructions, terms.demand)))
    if said != switching.said:
        switching.said = said
        prompt = switching.prompt()
        await core.record(SessionChanged(title=core.state.title, model=core.model.name, prompt=prompt))


class CallForm:
    """The form of a turn that must call a client tool: the turn waits in that call, so any answer comes too early."""

    def __init__(self, demand: str) -> None:
        self._demand = demand

    def fault(self, text: str) -> str:  # noqa: ARG002
        return self._demand

    def finish_answer(self, text: str) -> str:
        return text

    def find_printed(self, output: str) -> None:  # noqa: ARG002
        return None


def offer_tools(runner: SandboxActionRunner, schemas: Iterable[ToolSchema]) -> None:
    """Replace the client's tools by these."""
    registry, judging = runner.registry, runner.judging
    if judging.caller_tools:
        registry.remove(SERVER)
    taken = frozenset(registry.names)
    tools = [_tool(schema, taken) for schema in schemas]
    judging.caller_tools = frozenset(tool.name for tool in tools)
    runner.adapt_to_model(small=runner.glances)
    if tools:
        registry.put(SERVER, tools)


def caller_name(tool: str, names: Iterable[str]) -> str:
    """Return the client's own name of one of its tools."""
    bare = tool.removeprefix(PREFIX)
    return bare if bare in names else tool


def _tool(schema: ToolSchema, taken: frozenset[str]) -> AnyTool:
    properties: Mapping[str, Json] = schema.parameters.get("properties") or {}
    required: Collection[str] = schema.parameters.get("required") or ()
    return Tool(
        function=_refuse,
        name=f"{PREFIX}{schema.name}" if schema.name in taken else schema.name,
        description=schema.description,
        effect="once",
        parallel_safe=True,
        parameters={"type": "object", "properties": {}, **schema.parameters},
        takes=tuple(
            Argument(name=name, hint=Any, default=REQUIRED if name in required else None) for name in properties
        ),
        server=SERVER,
    )


def _refuse() -> None:
    raise BadCall("only the client can run this")
