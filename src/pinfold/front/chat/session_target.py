"""Finds or prepares the chat's session, loads the past to show, and builds a new user's first screen."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from pinfold import events
from pinfold.app import (
    BUILTIN,
    ConfigError,
    Link,
    Options,
    SessionStore,
    connect,
    current_folder,
    is_too_wide,
    load_config,
    new_session_options,
    open_session,
    read_session,
    resume_options,
)
from pinfold.app.clients import build_history
from pinfold.app.models import extra_for, is_usable, missing_modules
from pinfold.events import Entry, SessionId
from pinfold.front.chat.dialogs import UserDialog, ask_for_key, build_environment, fetch_weights, offer_extra
from pinfold.front.chat.status_line import Status
from pinfold.front.flags import Flags, flags_of, mount_settings
from pinfold.front.pages import SERVER_KINDS
from pinfold.text import exact_line, join_names, presentable_line

if TYPE_CHECKING:
    from pinfold.app.diagnostics import DetectedSetup

TURNS = 20
"""Past turns that are shown."""


class SessionTarget(Struct, frozen=True, kw_only=True):
    session: SessionId
    folder: Path | None
    """None for an ephemeral session, which is not kept."""
    options: Options
    is_new: bool

    def open_link(self) -> AbstractAsyncContextManager[Link]:
        if self.folder is None:
            return open_session(None, self.session, self.options)
        return connect(self.folder, self.session, self.options)


class Past(Struct, kw_only=True):
    entries: list[Entry] = []
    """Events of the last turns."""
    older: int = 0
    """Number of earlier turns, which are not shown."""
    displays: int = 0
    """Number of displays that came before `entries`."""
    status: Status = field(default_factory=Status)
    asked: dict[events.ActionId, events.ApprovalRequested] = {}
    """Requests that still wait for an answer."""

    def forget(self, count: int) -> None:
        """Drop the first `count` entries, and only count their displays."""
        from pinfold.app.storage.exports import displays_in

        self.displays += len(displays_in(self.entries[:count]))
        self.entries = self.entries[count:]


async def resolve_session(given: Flags, name: str | None, user: UserDialog) -> SessionTarget:
    """Find the session named `name`, or prepare a new one for None. Raises PinfoldError."""
    if name is None:
        await _ask_trust(given["workspace"] or current_folder(), user)
    place = await anyio.to_thread.run_sync(_resolve_target, given, name)
    if not place.is_new:
        return place
    options = place.options if place.options.model else replace(place.options, model=await _choose_model(user))
    model = str(options.model)
    if options.toolbox.loaded.config.data and missing_modules("sql") and not await offer_extra("sql", user):
        user.tell("Without it code cannot read databases. Install it later with: pinfold extras add sql")
    extra = extra_for(model, options.calling)
    if (not extra or await offer_extra(extra, user)) and await ask_for_key(model, options.calling, user):
        options = replace(options, calling=options.calling.with_stored_keys())
    if model in BUILTIN:
        await fetch_weights(model, user)
    if is_usable(model, options.calling):
        await build_environment(given["workspace"] or current_folder(), given["sandbox"], model, user)
    return replace(place, options=options)


async def _ask_trust(workspace: Path, user: UserDialog) -> None:
    """Ask once whether to follow the folder's instructions; ask again when they change."""
    from pinfold.app.trust import question, trust

    asked = await anyio.to_thread.run_sync(question, workspace)
    if asked is None:
        return
    changed = {f"{name} has changed since it was trusted" for name in asked.changed}
    user.tell(
        f"{presentable_line(str(workspace))}:", *(f"  {exact_line(line)}" for line in (*asked.lines, *sorted(changed)))
    )
    if await user.confirm("This folder has instructions for the agent. Follow them"):
        await anyio.to_thread.run_sync(trust, asked.found)


def last_session_here(given: Flags) -> str:
    """Return the session last used in this folder; in a folder such as $HOME, the last of all. Raises NoSuchSession."""
    folder = (given["workspace"] or current_folder()).resolve()
    return "last" if is_too_wide(folder) else SessionStore().last_in(folder)


def _resolve_target(given: Flags, name: str | None) -> SessionTarget:
    flags = flags_of(given)
    if name is not None:
        session, folder = SessionStore().find(name)
        options = resume_options(session, folder, given["workspace"], flags)
    else:
        session = events.new_session_id()
        folder = None if given["ephemeral"] else SessionStore().folder_of(session)
        if "run.mode" not in load_config(flags={"run.mode": flags["run.mode"]}).origins:
            flags["run.mode"] = "ask"
        options = new_session_options(session, given["workspace"], flags)
        options = replace(options, title=given.get("title"))
    options = replace(options, unattended=False, **mount_settings(given))
    return SessionTarget(session=session, folder=folder, options=options, is_new=name is None)


async def _choose_model(user: UserDialog) -> str:
    """Show what was found, and ask only if text would leave this machine."""
    from pinfold.app.diagnostics import agree_on_model, detect_setup

    there = await detect_setup()
    user.tell(*first_screen(there))
    if model := await agree_on_model(there, user.confirm):
        return model
    raise ConfigError("The chat needs a model: use --model NAME, or try `pinfold demo`.")


async def load_past(place: SessionTarget, upto: int) -> Past:
    """Load the session's past up to event `upto`."""
    if place.folder is None or place.is_new or upto == 0:
        return Past()
    return await anyio.to_thread.run_sync(_read_past, place.folder, place.session, upto)


def _read_past(folder: Path, session: SessionId, upto: int) -> Past:
    past = Past()
    begins: list[int] = []
    with read_session(folder, session) as (log, damage):
        for entry in log.read(damage=damage):
            if entry.seq > upto:
                break
            if isinstance(entry.event, events.UserSpoke):
                begins.append(len(past.entries))
            past.entries.append(entry)
            past.status.take(entry.event)
    actions = build_history(session, past.entries).state.open
    past.asked = {id_: one.asked for id_, one in actions.items() if one.stage == "asking" and one.asked}
    past.older = max(0, len(begins) - TURNS)
    if past.older:
        past.forget(begins[past.older])
    return past


# What a new user sees first

ROWS = 24
_LABEL = 16
_ISOLATION = {
    "namespaces": "full isolation (namespaces), verified in each session",
    "landlock": "lite isolation (landlock), because user namespaces are not allowed; see pinfold doctor",
    "none": "no isolation available: pinfold doctor says why",
    "unknown": "verified when the first code runs",
}


def first_screen(found: DetectedSetup, width: int = 80) -> list[str]:
    """Return at most ROWS lines of at most `width` columns."""
    lines = ["Found on this machine:", ""]
    for label, text in (*_facts(found), ("", ""), *_conclusions(found)):
        lines += _row(label, text, max(30, width))
    return lines if len(lines) <= ROWS else [*lines[: ROWS - 1], "..."]


def _facts(found: DetectedSetup) -> Iterator[tuple[str, str]]:
    if not found.servers:
        yield "model servers", "none found (Ollama, LM Studio, llama.cpp, vLLM)"
    for place, server in enumerate(found.servers[:4]):
        models = join_names([*map(server.name_of, server.models)], 3) if server.models else "no model yet"
        offers = ", needs a key" if server.needs_key else f": {models}"
        yield "" if place else "model servers", f"{SERVER_KINDS[server.kind]} at {server.base_url}{offers}"
    if found.builtin:
        missing = f"not downloaded yet, {found.builtin_size}: pinfold model pull builtin"
        yield "built-in model", f"{found.builtin}, {'downloaded' if found.builtin_here else missing}"
    keys = [f"{key.variable} ({key.provider})" for key in found.keys]
    yield "keys", join_names(keys, 4) if keys else "no provider key is set"
    chosen = "" if found.sandbox == "auto" else f"{found.sandbox}, as configured; "
    yield "sandbox", f"{chosen}{_ISOLATION[found.isolation]}"
    missing = "not installed yet: pandas and others are downloaded for the first session, 250 MB"
    yield "data libraries", "ready" if found.data_environment else missing


def _conclusions(found: DetectedSetup) -> Iterator[tuple[str, str]]:
    if found.model:
        yield "will use", f"{found.model}: {found.why}"
        yield "another model", "--model NAME, or permanently: pinfold config set model.name NAME"
        return
    yield "will use", "no model yet"
    if found.offer:
        yield ("if you agree", f"{found.offer.model}: what you type and what code prints goes to {found.offer.to}")
    if found.builtin_size:
        yield "on this machine", f"builtin, {found.builtin_size}: pinfold model pull builtin"
    yield "without a model", "pinfold demo: a recorded model, a real sandbox, no key"


def _row(label: str, text: str, width: int) -> list[str]:
    head = f"  {label:<{_LABEL}}"
    lines = textwrap.wrap(presentable_line(text), width - len(head), break_on_hyphens=False) or [""]
    return [f"{head if not place else ' ' * len(head)}{line}".rstrip() for place, line in enumerate(lines)]
