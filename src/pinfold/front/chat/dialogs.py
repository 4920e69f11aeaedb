"""Dialogs with the user: approvals, the agent's questions, and missing weights, packages, extras and keys."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
import anyio.from_thread
import anyio.to_thread
from rich.console import RenderableType
from rich.text import Text

from pinfold import events
from pinfold.app import CommandRefused, ConfigError, background
from pinfold.events import ActionId, ApprovalRequested, Command, Decide, Event, PinfoldError
from pinfold.front.chat.input_queue import ChoiceQuestion, InputQueue, KeyQuestion, WordsQuestion
from pinfold.front.chat.renderers.code import colour_lines
from pinfold.front.chat.renderers.transcript import HangingText, Transcript
from pinfold.front.pages import describe_pattern
from pinfold.front.progress import TimeLeft, make_reporter
from pinfold.text import cap_text, exact, presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.app import Progress
    from pinfold.app.models import CallOptions


Report: TypeAlias = Callable[[str, int, int, str], None]


class UserLeft(PinfoldError):
    """The user left during a download."""

    exit_code = 130


class UserDialog:
    """What is needed to choose and prepare a session: lines for the user, questions, and downloads."""

    def __init__(self, input_queue: InputQueue, transcript: Transcript) -> None:
        self._input_queue = input_queue
        self.transcript = transcript

    def tell(self, *lines: str) -> None:
        self.transcript.write(*lines)

    def progress(self, words: str) -> None:
        self._input_queue.status = lambda _: words
        self._input_queue.changed()

    async def ask(self, question: str, keys: Mapping[str, str]) -> str:
        """Ask a question and return the pressed key; "" for Esc."""
        return await self._input_queue.ask(KeyQuestion(presentable(question), keys)) or ""

    async def confirm(self, question: str) -> bool:
        self.progress("waiting for you")
        return await self.ask(f"{question}?", {"y": "yes", "n": "no"}) == "y"

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        """Let the user choose among pairs of a value and its label; return the value, or None for Esc."""
        if not options:
            return None
        question = ChoiceQuestion(presentable(title), [presentable_line(words) for _, words in options])
        answer = await self._input_queue.ask(question)
        return None if answer is None else options[int(answer)][0]

    async def ask_secret(self, title: str, label: str, command: str) -> str:
        """Ask without echo; return "" for Esc. Raises ConfigError naming `command` if the terminal cannot hide it."""
        if not self.transcript.steered:
            raise ConfigError(f"this terminal would show the key while you type; use: {command}")
        question = WordsQuestion(presentable(title), label, may_be_empty=False, hidden=True)
        return await self._input_queue.ask(question) or ""

    @asynccontextmanager
    async def let_user_cancel(self) -> AsyncGenerator[None]:
        """One Ctrl-C cancels the block and leaves the chat. Raises UserLeft."""
        input_queue, before = self._input_queue, self._input_queue.interrupted
        input_queue.busy_since, input_queue.interrupted = time.monotonic(), input_queue.leave

        async def watch(scope: anyio.CancelScope) -> None:
            await input_queue.left.wait()
            scope.cancel()

        try:
            async with background() as tasks:
                tasks.start_soon(watch, tasks.cancel_scope)
                yield
        finally:
            input_queue.busy_since, input_queue.interrupted = None, before
        if input_queue.leaving:
            raise UserLeft("stopped; the part that was downloaded is kept")


async def fetch_weights(model: str, user: UserDialog) -> None:
    """Download the model's weights. Raises PinfoldError."""
    from pinfold.app.models import pull_model

    async with user.let_user_cancel():
        await pull_model(model, make_reporter(_show_progress(user, f"{model}: ")))


async def build_environment(workspace: Path, sandbox: str | None, model: str, user: UserDialog) -> None:
    """Build the Python environment of a new session if it is needed and missing."""
    from pinfold.app.session import BUILDING, build_for_session, packages_to_build

    packages = await anyio.to_thread.run_sync(lambda: packages_to_build(workspace, sandbox, model=model))
    if packages is None:
        return
    user.tell(BUILDING)
    async with user.let_user_cancel():
        if problem := await anyio.to_thread.run_sync(build_for_session, packages, _report_from_thread(user)):
            user.tell(problem)


async def offer_extra(name: str, user: UserDialog) -> bool:
    """Ask to install an extra; True if it was installed. Raises ExtraFailed."""
    from pinfold.app.models import EXTRAS, add_extras, installation

    here = installation()
    question = f"This needs the extra `{name}` ({EXTRAS[name].words}). Install it into {here.folder} now"
    if not await user.confirm(question):
        return False
    async with user.let_user_cancel():
        await anyio.to_thread.run_sync(add_extras, [name], _report_from_thread(user))
    user.tell(presentable_line(f"Installed the extra `{name}` into {here.folder}"))
    return True


async def ask_for_key(model: str, calling: CallOptions, user: UserDialog) -> bool:
    """Ask for the provider's key if it is missing, and store it. False if the user gave none. Raises PinfoldError."""
    from pinfold.app.models import is_usable
    from pinfold.app.trust import Secrets

    missing = None if is_usable(model, calling) else calling.missing_key(model)
    if missing is None:
        return True
    title = (
        f"{missing.provider} needs a key ({missing.variable}). It is stored as a secret, sent only to {missing.host} "
        "and never shown. Paste it, or press Esc."
    )
    value = await user.ask_secret(title, "key:", f"pinfold secret set {missing.variable} --host {missing.host}")
    if not value:
        return False
    kept = await anyio.to_thread.run_sync(Secrets().set, missing.variable, value, [missing.host])
    where = "the keyring" if kept.where == "keyring" else str(Secrets().path)
    forget = f"pinfold secret rm {missing.variable}"
    user.tell(presentable_line(f"{missing.variable} is stored in {where}; delete it with: {forget}"))
    return True


def _show_progress(user: UserDialog, what: str = "") -> Report:
    """Return a function that shows progress in the status line, after the words `what`."""
    left = TimeLeft()
    return lambda words, done, total, counted: user.progress(
        f"{what}{words} {counted}{left.after(words, done, total)}".rstrip()
    )


def _report_from_thread(user: UserDialog) -> Callable[[Progress], None]:
    """Return a progress reporter for a worker thread; it also ends the thread once that is cancelled."""
    show = _show_progress(user)

    def report(words: str, done: int, total: int, counted: str) -> None:
        anyio.from_thread.check_cancelled()
        anyio.from_thread.run_sync(show, words, done, total, counted)

    return make_reporter(report)


Submit: TypeAlias = Callable[[Command], Awaitable[None]]
_SHOWN = 200_000
_GUTTER = "  │ "
"""Prefix of text that Pinfold did not write itself."""
_SEEN = 20
"""Lines of a request that are surely visible together with its question."""
_BLANKS = 2
"""Most empty lines shown in a row; a longer run is shown as a count, so it cannot push text out of sight."""
_SCOPES: dict[str, events.Scope] = {"y": "once", "s": "session", "a": "always"}


class Approvals:
    """Asks the user the open requests, oldest first. A request answered elsewhere disappears."""

    def __init__(self, input_queue: InputQueue, transcript: Transcript, submit: Submit) -> None:
        self._input_queue = input_queue
        self._transcript = transcript
        self._submit = submit
        self._waiting: dict[ActionId, ApprovalRequested] = {}
        self._asked: tuple[ActionId, anyio.CancelScope] | None = None
        self._ours: set[ActionId] = set()
        self._by_user: set[ActionId] = set()
        """Actions that the user started, and the actions those call."""
        self._woken = anyio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, event: Event) -> None:
        match event:
            case events.ActionProposed() if event.by == "user" or event.parent in self._by_user:
                self._by_user.add(event.id)
            case ApprovalRequested():
                self._waiting[event.id] = event
                self._dismiss(event.id)  # asked again: what was shown is outdated
                self._woken.set()
            case events.ApprovalDecided() | events.ActionFinished() if event.id in self._waiting:
                del self._waiting[event.id]
                self._dismiss(event.id)
                if isinstance(event, events.ApprovalDecided) and event.id not in self._ours:
                    who = "another process" if event.by == "user" else presentable_line(event.by)
                    self._transcript.write(Text(f"  answered by {who}", style="dim"))
            case _:
                pass

    async def serve(self) -> None:
        while True:
            while self._waiting:
                await self._ask(next(iter(self._waiting.values())))
            self._woken = anyio.Event()
            await self._woken.wait()

    def _dismiss(self, id_: ActionId) -> None:
        if self._asked is not None and self._asked[0] == id_:
            self._asked[1].cancel()

    async def _ask(self, event: ApprovalRequested) -> None:
        self._transcript.write(*render_request(event))
        with anyio.CancelScope() as scope:
            self._asked = event.id, scope
            decide = await (self._question(event) if event.question else self._approval(event))
            self._asked = None
            await self._decide(event, decide)
        self._asked = None

    async def _decide(self, event: ApprovalRequested, decide: Decide | None) -> None:
        """Submit the decision; None denies the request and interrupts the turn."""
        self._ours.add(event.id)
        self._waiting.pop(event.id, None)
        try:
            await self._submit(decide or _decision(event, "deny", words="the user stopped it"))
        except CommandRefused as refusal:  # another process answered first
            self._transcript.write(Text(f"  {presentable(str(refusal))}", style="dim"))
            return
        if decide is None:
            await self._submit(events.Interrupt())

    async def _approval(self, event: ApprovalRequested) -> Decide | None:
        key = await self._input_queue.ask(KeyQuestion(self._title(_format_question(event)), _keys(event)))
        if key is None:
            return None
        if key in _SCOPES:
            return _decision(event, "allow", _SCOPES[key])
        if event.id in self._by_user:  # no agent is waiting for instructions
            return _decision(event, "deny")
        why = WordsQuestion(
            "Denied. Tell the agent what to do instead, or press Enter.", "no:", may_be_empty=True, follows=True
        )
        words = await self._input_queue.ask(why)
        return None if words is None else _decision(event, "deny", words=words)

    async def _question(self, event: ApprovalRequested) -> Decide | None:
        label = "number or words:" if event.options else "answer:"
        words = await self._input_queue.ask(
            WordsQuestion(self._title("The agent has a question."), label, may_be_empty=False)
        )
        if words is None:
            return None
        if words.isdecimal() and len(words) < 5 and 1 <= int(words) <= len(event.options):
            words = event.options[int(words) - 1]
        return _decision(event, "allow", words=words)

    def _title(self, words: str) -> str:
        more = len(self._waiting) - 1
        return f"{words} ({more} more waiting)" if more > 0 else words


def _decision(
    event: ApprovalRequested, verdict: Literal["allow", "deny"], scope: events.Scope = "once", words: str = ""
) -> Decide:
    return Decide(id=event.id, digest=event.digest, verdict=verdict, scope=scope, words=words)


def _keys(event: ApprovalRequested) -> dict[str, str]:
    if len(event.shows) > _SHOWN:  # what is not shown cannot be allowed
        return {"n": "no", "esc": "stop"}
    keys = {"y": "once"}
    if event.pattern:
        is_flow = event.pattern.startswith(events.FLOW)
        keys |= {"s": "to this destination, this session" if is_flow else "this session"}
        if event.stored:
            keys |= {"a": "always"}
    return keys | {"n": "no", "esc": "stop"}


def render_request(event: ApprovalRequested) -> list[RenderableType]:
    """Return the request as it stays in the transcript."""
    asked = HangingText(Text(exact(event.reason), "bold yellow"), "? ", _GUTTER, "bold yellow")
    if event.question:
        return [
            asked,
            *(Text(f"  {number}. {presentable_line(words)}") for number, words in enumerate(event.options, 1)),
        ]
    parts: list[RenderableType] = [asked]
    if event.shows:
        parts += _render_effect(event.shows)
    if event.pattern:
        parts.append(_render_grants(event))
    return parts


def _render_grants(event: ApprovalRequested) -> RenderableType:
    file = presentable_line(PurePath(event.stored).name)
    allows = '"Session" and "always" allow' if event.stored else '"Session" allows'
    words = Text(f"{allows} ", style="dim")
    words.append(describe_pattern(exact(event.pattern).replace("\n", "\\n")), style="bold")
    if event.stored:
        words.append(f'; "always" is saved in {file}', style="dim")
    if event.bundled:
        words.append('; "once" allows all such calls of this cell', style="dim")
    return HangingText(words, "  ", "    ", "dim")


def _format_question(event: ApprovalRequested) -> str:
    """Return the question; it says so if the request is longer than the screen."""
    if len(event.shows) > _SHOWN:
        return f"Too long to show ({len(event.shows):,} characters), so it can only be denied."
    lines = event.shows.count("\n") + 1
    return f"Allow this? It is {lines:,} lines long, see above." if lines > _SEEN else "Allow this?"


def _render_effect(shows: str) -> list[RenderableType]:
    """Return every line of the effect; a diff is coloured."""
    lines = _strip_blank_lines(cap_text(exact(shows.rstrip("\n")), _SHOWN).split("\n"))
    is_diff = any(line.startswith("@@ -") for line in lines)
    styled = colour_lines(lines) if is_diff else [Text(line.expandtabs(4)) for line in lines]
    return [HangingText(line, _GUTTER, _GUTTER + "    ") for line in styled]


def _strip_blank_lines(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for is_blank, run in groupby(lines, key=lambda line: not line.strip("+- \t")):
        some = list(run)
        kept += [f"[{len(some):,} empty lines]"] if is_blank and len(some) > _BLANKS else some
    return kept
