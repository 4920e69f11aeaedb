"""Best of N: run one task in several sessions, each on a private view of the files; keep the first that passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.clients.submit import finish_turn, until_end
from pinfold.app.clients.task_runner import NOTHING, merge_changes
from pinfold.app.ownership.owner import acquire_or_open
from pinfold.app.session.live_session import LiveSession
from pinfold.app.session.options import Options
from pinfold.app.storage.session_store import SessionStore
from pinfold.app.tasks import background
from pinfold.events import Delta, Entry, PinfoldError, Say, SessionId, new_session_id, new_turn_id
from pinfold.sandbox.kernel.folders import TemporaryFolder, remove_folder
from pinfold.sandbox.views import MergeReport, discard


class Branch(Struct, frozen=True, kw_only=True):
    number: int
    session: SessionId
    folder: Path | None
    """None for an ephemeral session."""
    options: Options


class Winner(Struct, frozen=True, kw_only=True):
    branch: Branch
    text: str
    merged: MergeReport
    """Its file changes, merged into the workspace."""


class BestOfN:
    """Runs the branches. `show` gets every event of every branch, `say` a line of text about a branch."""

    def __init__(
        self,
        options: Options,
        count: int,
        *,
        store: SessionStore | None,
        show: Callable[[Entry | Delta], None],
        say: Callable[[str], None],
    ) -> None:
        self._scratch = TemporaryFolder("views") if store is None else None
        self._show = show
        self._say = say
        self._branches = [self._branch(options, number, store) for number in range(1, count + 1)]
        self._winner: tuple[Branch, str] | None = None
        self._untrusted: set[SessionId] = set()
        """Branches that have read outside text."""

    async def run(self, prompt: str, check: str) -> Winner | None:
        """Run until one branch passes the check or all have ended. If one passes, the others leave nothing behind."""
        try:
            async with background(), anyio.create_task_group() as racing:
                for branch in self._branches:
                    racing.start_soon(self._run_branch, branch, prompt, check, racing.cancel_scope)
            return await anyio.to_thread.run_sync(self._apply_winner)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._clear)

    def _branch(self, options: Options, number: int, store: SessionStore | None) -> Branch:
        session = new_session_id()
        folder = store.folder_of(session) if store else None
        place = folder or (self._scratch.path / session if self._scratch else None)
        settings = dict(options.settings)
        if isinstance(seed := settings.get("seed"), int):
            settings["seed"] = seed + number - 1  # otherwise all branches would reply the same
        title = f"{options.title or 'branch'} ({number})"
        view = place / "view" if place else None
        options = replace(options, title=title, settings=settings, view=view)
        return Branch(number=number, session=session, folder=folder, options=options)

    async def _run_branch(self, branch: Branch, prompt: str, check: str, race: anyio.CancelScope) -> None:
        try:
            async with acquire_or_open(branch.folder, branch.session, branch.options) as live:
                text = await self._try_branch(branch, live, prompt, check)
        except PinfoldError as error:
            self._say(f"branch {branch.number}: {error}")
            text = None
        if text is not None and self._winner is None:
            self._winner = branch, text
            race.cancel()

    async def _try_branch(self, branch: Branch, live: LiveSession, prompt: str, check: str) -> str | None:
        """Return the branch's answer if it passes. Raises PinfoldError."""
        say = Say(turn=new_turn_id(), text=prompt)
        async with live.subscribe(0) as feed:
            await live.submit(say)
            end, _ = await finish_turn(until_end(feed, say.turn), say, self._show)
        passed = await live.passes(check)
        if live.is_untrusted:
            self._untrusted.add(branch.session)
        self._say(f"branch {branch.number}: {'passed' if passed else 'did not pass'} the check")
        return end.text if passed else None

    def _apply_winner(self) -> Winner | None:
        if self._winner is None:
            return None
        branch, text = self._winner
        workspace, view = branch.options.workspace, branch.options.view
        merged = NOTHING
        if workspace and view and view.is_dir():  # without a view folder, it ran no cell
            merged = merge_changes(branch.session, workspace, view, branch.session in self._untrusted)
        return Winner(branch=branch, text=text, merged=merged)

    def _clear(self) -> None:
        """Remove all views, and if a branch won, the sessions of the others."""
        for branch in self._branches:
            if branch.options.view and branch.options.view.exists():
                discard(branch.options.view)
            if self._winner and branch is not self._winner[0] and branch.folder:
                remove_folder(branch.folder)
        if self._scratch:
            self._scratch.remove()


def describe_conflicts(merged: MergeReport) -> Sequence[str]:
    """Return a line for each file that is not as the winner left it."""
    lines = [f"{path} was changed here meanwhile and stays as it is" for path in merged.conflicts]
    return [*lines, *(f"{one.path} was left out: {one.why}" for one in merged.left_out)]
