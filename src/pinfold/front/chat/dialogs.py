"""Tells and asks the user, and gets what a session still needs: weights, packages for cells, extras, keys."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio
import anyio.from_thread
import anyio.to_thread

from pinfold.app import ConfigError, background
from pinfold.events import PinfoldError
from pinfold.front.chat.input_queue import ChoiceQuestion, InputQueue, KeyQuestion, WordsQuestion
from pinfold.front.chat.renderers.transcript import Transcript
from pinfold.front.progress import TimeLeft, make_reporter
from pinfold.text import presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.app import Progress
    from pinfold.app.models import CallOptions


Report: TypeAlias = Callable[[str, int, int, str], None]


class UserInteraction(Protocol):
    """What choosing and preparing a session needs of the chat."""

    def tell(self, *lines: str) -> None: ...

    def progress(self, words: str) -> None: ...

    async def confirm(self, question: str) -> bool: ...

    async def ask_secret(self, title: str, label: str, command: str) -> str:
        """Hides what is typed; returns "" for Esc. Raises ConfigError, which names `command`, if the terminal cannot hide it."""
        ...

    def let_user_cancel(self) -> AbstractAsyncContextManager[None]:
        """The user may stop the download inside, and leave."""
        ...


class UserLeft(PinfoldError):
    """The user left during a download."""

    exit_code = 130


class UserDialog:
    def __init__(self, input_queue: InputQueue, transcript: Transcript) -> None:
        self._input_queue = input_queue
        self.transcript = transcript

    def tell(self, *lines: str) -> None:
        self.transcript.write(*lines)

    def progress(self, words: str) -> None:
        self._input_queue.status = lambda _: words
        self._input_queue.changed()

    async def ask(self, question: str, keys: Mapping[str, str]) -> str:
        return await self._input_queue.ask(KeyQuestion(presentable(question), keys)) or ""

    async def confirm(self, question: str) -> bool:
        self.progress("waiting for you")
        return await self.ask(f"{question}?", {"y": "yes", "n": "no"}) == "y"

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        if not options:
            return None
        question = ChoiceQuestion(presentable(title), [presentable_line(words) for _, words in options])
        answer = await self._input_queue.ask(question)
        return None if answer is None else options[int(answer)][0]

    async def ask_secret(self, title: str, label: str, command: str) -> str:
        if not self.transcript.steered:
            raise ConfigError(f"this terminal would show the key while you type; use: {command}")
        question = WordsQuestion(presentable(title), label, may_be_empty=False, hidden=True)
        return await self._input_queue.ask(question) or ""

    @asynccontextmanager
    async def let_user_cancel(self) -> AsyncGenerator[None]:
        """One Ctrl-C leaves and cancels what runs inside. Raises UserLeft."""
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


async def fetch_weights(model: str, user: UserInteraction) -> None:
    """Raises PinfoldError."""
    from pinfold.app.models import Pulling, pull_model

    show = _make_reporter(user)

    def on_progress(pulling: Pulling) -> None:
        of = f" of {pulling.total / 1e6:,.0f}" if pulling.total else ""
        show(f"fetching {model}:", pulling.done, pulling.total, f"{pulling.done / 1e6:,.0f}{of} MB")

    async with user.let_user_cancel():
        await pull_model(model, on_progress)


async def build_environment(workspace: Path, sandbox: str | None, model: str, user: UserInteraction) -> None:
    """Build the Python environment of a new session, if it is wanted and missing."""
    from pinfold.app.session import BUILDING, build_for_session, packages_to_build

    packages = await anyio.to_thread.run_sync(lambda: packages_to_build(workspace, sandbox, model=model))
    if packages is None:
        return
    user.tell(BUILDING)
    async with user.let_user_cancel():
        if problem := await anyio.to_thread.run_sync(build_for_session, packages, _report_from_thread(user)):
            user.tell(problem)


async def offer_extra(name: str, user: UserInteraction) -> bool:
    """Ask, and install after a yes. Raises ExtraFailed."""
    from pinfold.app.models import EXTRAS, add_extras, installation

    here = installation()
    question = f"This needs the extra `{name}` ({EXTRAS[name].words}). Install it into {here.folder} now"
    if not await user.confirm(question):
        return False
    async with user.let_user_cancel():
        await anyio.to_thread.run_sync(add_extras, [name], _report_from_thread(user))
    user.tell(presentable_line(f"Installed the extra `{name}` into {here.folder}"))
    return True


async def ask_for_key(model: str, calling: CallOptions, user: UserInteraction) -> bool:
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


def _make_reporter(user: UserInteraction) -> Report:
    left = TimeLeft()
    return lambda words, done, total, counted: user.progress(
        f"{words} {counted}{left.after(words, done, total)}".rstrip()
    )


def _report_from_thread(user: UserInteraction) -> Callable[[Progress], None]:
    """Also ends the thread once it is cancelled."""
    show = _make_reporter(user)

    def report(words: str, done: int, total: int, counted: str) -> None:
        anyio.from_thread.check_cancelled()
        anyio.from_thread.run_sync(show, words, done, total, counted)

    return make_reporter(report)
