"""/mode, /model, /grants, /doctor, /map, /add and /data: how the session works from here on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import anyio.to_thread

from pinfold.app import check_paths, load_config, mounts_of, parse_named_paths
from pinfold.app.session import refuse_overlap
from pinfold.events import Configure, Mode, PinfoldError
from pinfold.front.chat.commands.context import BadArguments, ChatContext, parse_number
from pinfold.front.pages import MODES, columns
from pinfold.text import presentable_line

if TYPE_CHECKING:
    from pinfold.app.models import Reachable


async def mode_command(chat: ChatContext, rest: str) -> None:
    now = (await chat.link.status()).mode
    wanted = rest.strip() or await chat.choose(
        "What the agent may do without asking you",
        [(mode, f"{mode:<10}{words}{'  (now)' if mode == now else ''}") for mode, words in MODES],
    )
    if not wanted:
        return
    mode = next((mode for mode in get_args(Mode) if mode == wanted), None)
    if mode is None:
        raise BadArguments(f"no mode {wanted!r}; choose {', '.join(get_args(Mode))}")
    await chat.link.submit(Configure(mode=mode))


async def model_command(chat: ChatContext, rest: str) -> None:
    wanted = rest.strip()
    if not wanted:
        from pinfold.app.models import SUGGESTED, reachable_models

        now = (await chat.link.status()).model
        reachable = await reachable_models()
        held = {key.provider for key in reachable.keys}
        away = [
            (name, f"{name}  sends the chat to {provider}{'' if provider in held else '; needs a key'}")
            for provider, name in SUGGESTED.items()
        ]
        title = f"Model (now {presentable_line(now)}); any other: /model PROVIDER:NAME"
        wanted = await chat.choose(title, [*_options(reachable, now), *away]) or ""
    if not wanted:
        return
    if await _can_be_had(chat, wanted):
        await chat.link.submit(Configure(model=wanted))


async def _can_be_had(chat: ChatContext, model: str) -> bool:
    """Offer to install what the model needs, and ask for its key. A wrong name is reported when the model is set."""
    from pinfold.app.models import CallOptions, extra_for
    from pinfold.front.chat.dialogs import ask_for_key, offer_extra

    loaded = await anyio.to_thread.run_sync(load_config, chat.workspace)
    calling = CallOptions.of(loaded.config, loaded.keys())
    try:
        extra = extra_for(model, calling)
    except PinfoldError:
        return True
    if extra and not await offer_extra(extra, chat):
        return True
    return await ask_for_key(model, calling, chat)


def _options(reachable: Reachable, now: str) -> list[tuple[str, str]]:
    options = [
        (inside.weights.name, f"{inside.weights.name}  {inside.weights.title}, runs here")
        for inside in reachable.inside
        if inside.path
    ]
    for server in reachable.servers:
        for model in server.models:
            size = f"context {model.context:,}" if model.context else "context unknown"
            name = server.name_of(model)
            options.append((name, presentable_line(f"{name}  {size}, at {server.base_url}")))
    return [(name, f"{words}  (now)" if name == now else words) for name, words in options]


async def grants_command(chat: ChatContext, rest: str) -> None:
    # An "always" permission is a session permission too; show it once.
    granted = list({str(one["pattern"]): str(one["scope"]) for one in await chat.query("grants")}.items())
    match rest.split():
        case []:
            if not granted:
                chat.write_note("No standing permissions; you'll be asked each time.")
                return
            rows = [(f"{number:>3}", scope, pattern) for number, (pattern, scope) in enumerate(granted, 1)]
            chat.write_lines(columns(rows, width=chat.transcript.width))
            chat.write_note("revoke one: /grants revoke N")
        case ["revoke", word]:
            number = parse_number(word, "grant")
            if number > len(granted):
                raise BadArguments(f"no permission {number}; /grants lists {len(granted)}")
            await _revoke(chat, *granted[number - 1])
        case _:
            raise BadArguments("write /grants, or /grants revoke N")


async def _revoke(chat: ChatContext, pattern: str, scope: str) -> None:
    if scope == "this run":
        raise BadArguments(f"{pattern!r} was given on the command line; it ends with this chat")
    if scope == "always":
        from pinfold.app.trust import Grants

        await anyio.to_thread.run_sync(Grants().revoke, pattern, chat.workspace)
    if pattern in (await chat.load_history()).state.granted:
        await chat.link.submit(Configure(revoke=(pattern,)))
    else:
        chat.write_note(f"revoked: {pattern}")


async def doctor_command(chat: ChatContext, _: str) -> None:
    chat.write_note("checking every sandbox and model here")
    await chat.run_cli_command("doctor")


async def map_command(chat: ChatContext, _: str) -> None:
    from pinfold.app.diagnostics import build_session_map
    from pinfold.front.pages import map_page

    chat.write_lines(map_page(await build_session_map(chat.link), chat.transcript.width))
    chat.write_note("the whole installation: pinfold map")


async def add_command(chat: ChatContext, rest: str) -> None:
    if not rest:
        raise BadArguments("which path? /add PATH, or /add PATH:rw to let code write there")
    await chat.require_idle("/add")
    had = (await chat.link.status()).mounts
    given = [*(f"{path}:{'rw' if writable else 'ro'}" for path, writable in had.items()), _at_home(rest)]
    mounts = await anyio.to_thread.run_sync(mounts_of, given)
    refuse_overlap(mounts, chat.workspace)
    how = "code may write there; undo does not cover it" if mounts[-1].writable else "code may read it"
    await chat.reopen(mounts=mounts)
    chat.write_note(f"adding {mounts[-1].path}: {how}")


async def data_command(chat: ChatContext, rest: str) -> None:
    if not rest:
        raise BadArguments("which path? /data PATH, or /data NAME=PATH; code reads it at /mnt/datasets/NAME")
    await chat.require_idle("/data")
    had = (await chat.link.status()).data
    given = [*(f"{name}={path}" for name, path in had.items()), _at_home(rest)]
    data = await anyio.to_thread.run_sync(lambda: check_paths(parse_named_paths(given)))
    await chat.reopen(data=data)
    chat.write_note(f"adding {rest}: code may read it at /mnt/datasets/{[*data][-1]}")


def _at_home(text: str) -> str:
    """Expand ~, as a shell would."""
    return str(Path(text).expanduser()) if text.startswith("~") else text
