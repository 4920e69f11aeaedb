"""Gets what a session still needs, with progress: weights, packages for cells, extras, keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.from_thread
import anyio.to_thread

from pinfold.front.chat.dialogs import UserInteraction
from pinfold.front.progress import TimeLeft, make_reporter
from pinfold.text import presentable_line

if TYPE_CHECKING:
    from pinfold.app.models import CallOptions


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
    show = make_reporter(_report_from_thread(_make_reporter(user)))
    async with user.let_user_cancel():
        if problem := await anyio.to_thread.run_sync(build_for_session, packages, show):
            user.tell(problem)


async def offer_extra(name: str, user: UserInteraction) -> bool:
    """Ask, and install after a yes. Raises ExtraFailed."""
    from pinfold.app.models import EXTRAS, add_extras, installation

    here = installation()
    question = f"This needs the extra `{name}` ({EXTRAS[name].words}). Install it into {here.folder} now"
    if not await user.confirm(question):
        return False
    async with user.let_user_cancel():
        await anyio.to_thread.run_sync(add_extras, [name], make_reporter(_report_from_thread(_make_reporter(user))))
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


def _make_reporter(user: UserInteraction) -> Callable[[str, int, int, str], None]:
    left = TimeLeft()
    return lambda words, done, total, counted: user.progress(
        f"{words} {counted}{left.after(words, done, total)}".rstrip()
    )


def _report_from_thread(show: Callable[[str, int, int, str], None]) -> Callable[[str, int, int, str], None]:
    """Also ends the thread once it is cancelled."""

    def report(words: str, done: int, total: int, counted: str) -> None:
        anyio.from_thread.check_cancelled()
        anyio.from_thread.run_sync(show, words, done, total, counted)

    return report
