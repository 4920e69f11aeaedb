"""Checks an answer before the turn ends, by a command or a read-only sub-agent, each on a fork of the session."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from pinfold.app.session.agent_tools import AgentTask, load_definitions
from pinfold.app.session.agents import Agents
from pinfold.app.session.egress import ActionContext
from pinfold.engine import Performed, Verified
from pinfold.events import Json, PinfoldError, plain_json
from pinfold.sandbox import Forkable
from pinfold.sandbox.kernel.folders import folder
from pinfold.text import cap_text

MODEL = "model"
NAME = "verifier"
"""A sub-agent definition of this name does the check, if there is one."""
_SAID = 2000
"""Longest reasons that the model is shown, in characters."""
_ACCEPT, _REFUSE = "ACCEPT", "REFUSE"
_BRIEF = """\
Check the answer below against the question, with the variables and files that are here: look them up and compute again. \
Refuse only what is wrong or left out, not style.
End with one line: ACCEPT, or REFUSE: and the reasons, so that they can be acted on.

Question:
{question}

Answer:
{answer}"""


class AnswerVerifier(Struct, frozen=True, kw_only=True):
    agents: Agents
    how: str
    """The word "model", or a command."""

    async def verify(self, question: str, answer: str) -> Verified:
        try:
            if self.how == MODEL:
                return await self._ask_model(question, answer)
            return await self._run_command(question, answer)
        except PinfoldError as error:
            return Verified(notice=f"The answer could not be checked: {error}")

    async def _run_command(self, question: str, answer: str) -> Verified:
        runner = self.agents.runner
        session = await runner.ensure_session()
        given = plain_json({"question": question, "answer": answer}).encode()
        with folder("views") as view:
            if isinstance(session, Forkable) and session.capabilities.files_view and runner.spec.writable:
                fork = await session.fork(view)
            else:
                fork = await session.fork()
            try:
                limit_s = runner.spec.limits.cell_s
                outcome = await fork.command(["/bin/sh", "-c", self.how], timeout_s=limit_s, stdin=given)
            finally:
                await fork.close()
                if isinstance(fork, Forkable):
                    fork.release_view()
        said = (outcome.stdout + outcome.stderr).decode("utf-8", "replace").strip()
        if outcome.status == "ok":
            return Verified()
        how = "did not end in time" if outcome.status == "timeout" else f"exited with {outcome.code}"
        return Verified(faults=cap_text(said, _SAID) or f"`{self.how}` {how}")

    async def _ask_model(self, question: str, answer: str) -> Verified:
        what = ActionContext(on_call=_deny, on_output=lambda _stream, _text: None)
        described = load_definitions(self.agents.options.toolbox.loaded.obeyed)
        brief, agent = _BRIEF.format(question=question, answer=answer), NAME if NAME in described else ""
        task = AgentTask(brief=brief, name=NAME, agent=agent, read_only=True)
        (run,) = await self.agents.run_all([task], what)
        verified = partial(Verified, usage=run.usage, cost=run.cost)
        verdict = run.answer.rpartition(_REFUSE)
        if run.status == "done" and verdict[1] and _ACCEPT not in verdict[2]:
            reasons = verdict[2].lstrip(": \n") or run.answer
            return verified(faults=cap_text(reasons.strip(), _SAID))
        if _ACCEPT in run.answer:
            return verified()
        why = run.why or "it gave no verdict"
        return verified(notice=f"The answer could not be checked: {cap_text(why, _SAID)}")


async def _deny(_tool: str, _args: Mapping[str, Json]) -> Performed:
    return Performed(outcome="denied", observation="approvals are not possible while an answer is checked")
