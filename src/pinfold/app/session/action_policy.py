"""Judges actions: collects the facts that policy needs, and the preview that the user is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from anyio import to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from pinfold.app.session.agent_tools import START
from pinfold.app.session.egress import NETWORK, QUESTION, Flows, SessionEgress
from pinfold.app.session.protected_files import find_protected_file, plan_edit
from pinfold.app.trust.named_files import MOST, describe_named_files, files_named
from pinfold.app.trust.privacy import Privacy
from pinfold.app.trust.workspace_trust import Grants
from pinfold.engine import NotShown, PolicyContext, Stopped
from pinfold.events import Action, Ask, CallTool, Deny, Effect, Json, RunCell, Verdict
from pinfold.policy import Facts, Guards, Rules, Taint, judge, read_script, shell_facts
from pinfold.sandbox import Spec
from pinfold.text import first_line
from pinfold.tools import AnyTool, BadCall, Registry, ToolFailed
from pinfold.tools.builtin.files import WRITES, measure, preview
from pinfold.tools.ports import Inside

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers
    from pinfold.app.session.skill_tools import SessionSkills
    from pinfold.net import Destination

SHOWN = 200_000
"""Longest preview in characters; a longer one is refused, because the user could not see what they allow."""
COMMAND = 20_000
"""Longest command or cell that the user can be asked about, in characters."""
_SAYS = 200
"""Longest tool description shown with a question, in characters."""
SHELL = "shell"
PROMOTE = "promote_skill"
_PROMOTING = "this function would become one of your tools, in this and all later sessions{}"
_OUTSIDE = ". This session has read outside text, so read the code with care"
NO_TUNNELS = (
    "this session has read your files and outside text, so its code gets no more connections; "
    "use the tool fetch, which shows what is sent, or start with --allow-host {}"
)


class ActionPolicy(Struct, kw_only=True):
    registry: Registry
    spec: Spec
    egress: SessionEgress
    privacy: Privacy
    inside: Inside
    handed: frozenset[str] = frozenset()
    """Tools that the user passed directly, as in `Agent(tools=...)`."""
    rules: Rules = field(default_factory=Rules)
    grants: Grants
    """Grants of the scope "always"."""
    guards: Guards = field(default_factory=Guards)
    servers: SessionServers | None = None
    """The MCP servers."""
    flows: Flows = field(default_factory=Flows)
    skills: SessionSkills | None = None
    is_untrusted: bool = False
    """True if the session had read outside text at the last verdict."""
    has_met_outside_text: bool = False
    """True once outside text came in, even without a call, as by another session's file; recorded after the action."""
    is_parent_untrusted: Callable[[], bool] = lambda: False
    """In a sub-agent: returns True if the parent session has read outside text."""
    caller_tools: frozenset[str] = frozenset()
    """Tools that the client runs itself, after deciding whether to."""

    def judge(self, action: Action, given: PolicyContext) -> Verdict:
        if isinstance(action, CallTool) and action.tool in self.caller_tools:
            return Ask(reason=f"{action.tool} is run by the client", question=True, caller=True, rule="the client's")
        if isinstance(action, CallTool) and action.tool == QUESTION and self.registry.get(QUESTION):
            return _question(action)
        connects = isinstance(action, CallTool) and action.tool == NETWORK
        if isinstance(action, CallTool) and connects and action.args not in self.egress.wanted:
            return Deny(f"no tool is called {NETWORK!r}; open a connection instead", rule="the way out")
        facts = Facts(effect="once", reach="workspace") if given.stopped else self.facts(action)
        if isinstance(action, CallTool) and facts.leaves:
            facts = replace(facts, may_leave=self.flows.allows(action.tool, self.destination(action)))
        self.has_met_outside_text = self.has_met_outside_text or self.is_parent_untrusted()
        self.is_untrusted = given.untrusted or self.has_met_outside_text
        # A running cell may have read all private data already, although its end is not recorded yet.
        taint = Taint(private=given.private or self.privacy.is_exposed, untrusted=self.is_untrusted)
        if connects and taint.is_full and given.mode != "full" and not facts.may_leave:
            return Deny(NO_TUNNELS.format(facts.target.partition(":")[0]), rule="taint")
        decide = partial(judge, action, facts, mode=given.mode, rules=self.rules, guards=self.guards)
        verdict = decide(grants=given.grants, taint=taint)
        if isinstance(verdict, Ask) and verdict.pattern and not verdict.is_flow:
            verdict = decide(grants=given.grants | self.grants.of(self.spec.workspace), taint=taint)
        if connects and isinstance(verdict, Ask):
            return replace(verdict, reason=f"code wants {facts.target}")
        if given.stopped and isinstance(verdict, Ask) and isinstance(action, CallTool):
            return replace(verdict, reason=_why_stopped(action, given.stopped))
        tool = self.registry.get(action.tool) if isinstance(action, CallTool) else None
        # A lasting yes is offered only if it would cover the same call next time: as a grant, or else as a flow.
        if isinstance(verdict, Ask) and verdict.pattern:
            if tool is not None and tool.trust == "untrusted":  # `trust` is about its results
                taint = replace(taint, untrusted=True)
            again = decide(grants=given.grants | {verdict.pattern}, taint=taint)
            if isinstance(again, Ask):
                verdict = replace(verdict, pattern=again.pattern if again.is_flow else "", is_flow=again.is_flow)
        return verdict if tool is None or isinstance(verdict, Deny) else self._ask_in_every_mode(tool) or verdict

    def _ask_in_every_mode(self, tool: AnyTool) -> Verdict | None:
        """Return the question for a tool that the user must be asked about each time, whatever they granted."""
        if tool.name == PROMOTE and self.skills:
            return Ask(reason=_PROMOTING.format(_OUTSIDE if self.is_untrusted else ""), rule="a new tool")
        return _ask_about_change(tool, self.servers) if self.servers and tool.held else None

    def effect(self, action: Action) -> Effect:
        """Return the effect. A shell command is `once`, because only a read-only run enforces that it just reads."""
        if isinstance(action, RunCell) or action.tool == SHELL:
            return "once"
        return self.facts(action).effect

    def counts_as_cell(self, action: Action) -> bool:
        """Return True if it may change the workspace from inside the session, so that undo can revert it."""
        if isinstance(action, RunCell):
            return True
        reach = self.facts(action).reach
        return reach == "workspace" or (action.tool == SHELL and reach in ("files", "outside"))

    def facts(self, action: Action) -> Facts:
        if isinstance(action, RunCell):
            return Facts(effect="once", reach="workspace")
        if action.tool == NETWORK:
            return self._network(self.destination(action), "once")
        if action.tool == START:
            return Facts(effect="once", reach="nothing")  # what sub-agents do is judged in their own sessions
        tool = self.registry.get(action.tool)
        if self.servers and (facts := server_facts(action, tool, self.servers)):
            return facts
        if tool is None:
            return Facts(effect="pure", reach="nothing")  # the call only reports that there is no such tool
        reach, target = tool.reach_of(action.given)
        if action.tool == SHELL:
            where = "host" if reach == "host" else "sandbox"
            return shell_facts(str(action.given.get("command", "")), where=where)[0]
        if path := find_protected_file(action, self.spec.workspace):
            return Facts(effect="once", reach="protected", target=path)
        if reach == "network":
            return self._network(self.destination(action), tool.effect, handed=tool.name in self.handed)
        # The name of a package is sent to the index, and a name can carry data.
        leaves = reach in ("outside", "packages") and tool.effect != "pure"
        handed = tool.name in self.handed
        return Facts(effect=tool.effect, reach=reach, target=target, handed=handed, leaves=leaves)

    def _network(self, to: Destination | None, effect: Effect, *, handed: bool = False) -> Facts:
        listed = to is not None and self.egress.listed.lists(to)
        return Facts(effect=effect, reach="network", target=str(to or ""), listed=listed, handed=handed, leaves=True)

    def destination(self, action: Action) -> Destination | None:
        """Return where a call connects, in the canonical form used to compare and to connect."""
        if isinstance(action, RunCell):
            return None
        tool = self.registry.get(action.tool)
        reach, target = tool.reach_of(action.given) if tool else ("nothing", "")
        if action.tool != NETWORK and reach != "network":
            return None
        from pinfold.net import BadDestination, Destination, parse_authority

        with suppress(BadDestination, ValueError, TypeError):
            if action.tool == NETWORK:
                return Destination(str(action.given.get("host")), int(action.given.get("port", 0)))
            return parse_authority(target) if target else None
        return None

    def is_host_command(self, action: Action) -> bool:
        return isinstance(action, CallTool) and action.tool == SHELL and self.facts(action).reach == "host"

    async def preview_action(self, action: Action) -> str:
        """Raises Unavailable, NotShown."""
        if isinstance(action, RunCell):
            return _require_showable(action.code, COMMAND, "this cell", "split it into smaller ones")
        try:
            return _require_showable(
                await self._preview_call(action),
                SHOWN,
                f"what {action.tool} would do",
                "do it in smaller steps, or by code in a cell",
            )
        except (BadCall, ToolFailed) as error:
            return _require_showable(f"{_arguments(action)}\n({error})", SHOWN, action.tool, "do it in smaller steps")

    async def _preview_call(self, action: CallTool) -> str:
        if action.tool == SHELL:
            return await self._command(action)
        if find_protected_file(action, self.spec.workspace):
            return plan_edit(action, self.spec.workspace).diff()
        tool = self.registry.get(action.tool)
        if tool and tool.name == PROMOTE and self.skills:
            return await self.skills.preview(action.given)
        if tool and tool.held and self.servers:
            return f"{self.servers.show_difference(tool.server)}\n\n{_arguments(action)}"
        if action.tool in WRITES:
            return await preview(self.inside, action.tool, action.given)
        says = first_line(tool.schema.description, _SAYS) if tool else ""
        if not tool or not says:
            return _arguments(action)
        is_servers = self.servers is not None and tool.server in self.servers.names
        what = f"What {tool.server} says it does" if is_servers else "What it does"
        return f"{_arguments(action)}\n\n{what}: {says}"

    async def _command(self, action: CallTool) -> str:
        command, workdir = str(action.given.get("command", "")), str(action.given.get("workdir") or ".")
        _require_showable(
            command,
            COMMAND,
            "this command",
            "write it into a script file first and run that: the script is then shown and bound",
        )
        script = read_script(command)
        lines = [command, ""]
        on_host = self.is_host_command(action)
        if on_host:
            lines.append(f"On this machine itself, {len(command.encode())} bytes, in {workdir}")
        lines += [f"  {'reads ' if one.reads_only else 'writes'}  {one.shown}" for one in script.commands]
        if on_host:  # the session is frozen by now: nothing can be counted inside it
            lines += await to_thread.run_sync(self._show_named_files, command, workdir)
        elif script.deletes:
            found = await measure(self.inside, script.deletes)
            # It is not known in advance which of these files `find` or `git` chooses.
            chosen = any(one.name in ("find", "git") for one in script.commands)
            about = "more than " if found.more else "at most " if chosen else ""
            size = f"{about}{found.files:,} files, {found.bytes:,} bytes"
            lines.append(f"Deletes {size}: {', '.join(script.deletes)}")
        return "\n".join(lines)

    def _show_named_files(self, command: str, workdir: str) -> list[str]:
        """Raises NotShown."""
        folder = self.spec.workspace / workdir
        files = files_named(
            command, folder, (self.spec.workspace, *(mount.path for mount in self.spec.mounts if mount.writable))
        )
        if len(files) > MOST:
            raise NotShown(f"this command names more than {MOST} files; name fewer, or the folder they are in")
        return list(describe_named_files(files, folder))


def _require_showable(text: str, most: int, what: str, instead: str) -> str:
    """Raises NotShown."""
    if len(text) > most:
        raise NotShown(
            f"{what} is too long to show in full ({len(text):,} characters; the limit is {most:,}), "
            f"so it cannot be approved; {instead}"
        )
    return text


def _why_stopped(action: CallTool, stopped: Stopped) -> str:
    if stopped == "impossible":
        return "this system cannot run the command read-only, so it may change files"
    names = dict.fromkeys(one.name for one in read_script(str(action.given.get("command", ""))).commands)
    name = f"`{next(iter(names))}`" if len(names) == 1 and "" not in names else "the command"
    return f"{name} tried to change files"


def _arguments(action: CallTool) -> str:
    return f"{action.tool} {json.dumps(action.args, indent=2, ensure_ascii=False, default=repr)}"


def _question(action: CallTool) -> Ask:
    options = action.given.get("options")
    given = tuple(map(str, cast("list[Json]", options))) if isinstance(options, list) else ()
    question = str(action.given.get("question", ""))
    return Ask(reason=question, question=True, options=given, rule="a question")


_SHOWN_DIFFERENCE = 16_000
"""Longest difference that an approval can show, in characters: the user must see all of it."""
_RULE = "changed since you agreed"


def server_facts(action: CallTool, tool: AnyTool | None, servers: SessionServers) -> Facts | None:
    """Return the facts of a call to an MCP server; None for other calls."""
    if servers.is_sampling(action):
        return Facts(effect="once", reach="outside")
    if tool is None or tool.server not in servers.names:
        return None
    target = f"server {servers.identity(tool.server)}"
    return Facts(effect=tool.effect, reach="outside", target=target, leaves=servers.leaves(tool))


def _ask_about_change(tool: AnyTool, servers: SessionServers) -> Verdict:
    """Ask about a tool that changed since the user agreed to it: each time, in every mode; no grant covers it."""
    server = tool.server
    if len(servers.difference(server).text) > _SHOWN_DIFFERENCE:
        return Deny(f"{server} has changed too much to show here; review it: pinfold mcp trust {server}", rule=_RULE)
    return Ask(
        reason=f"{server} has changed its description of {tool.name} since you agreed to it; "
        f"a yes accepts everything that has changed in {server}",
        rule=_RULE,
    )
