"""Runs the agent for one editor, over the streams it was started with."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any, BinaryIO

import anyio

from pinfold.front.acp.agent import EditorAgent
from pinfold.front.acp.connection import Connection


async def serve_editor(
    reads: BinaryIO,
    writes: BinaryIO,
    first: tuple[bytes, Mapping[str, Any] | None],
    terms: tuple[Mapping[str, Any], Mapping[str, Any], str | None],
) -> None:
    """Until the editor closes its stream, or a signal. `first` is from `answer_initialize`; `terms` as EditorAgent has them."""
    serving = anyio.CancelScope()
    line, initialized = first
    connection = Connection(reads, writes, line)
    async with anyio.create_task_group() as tasks:
        agent = EditorAgent(connection, tasks, *terms)
        if initialized is not None:
            tasks.start_soon(agent.prepare, initialized)
        tasks.start_soon(_cancel_on_signal, serving)
        with serving:
            await connection.serve()
        await agent.end()
        tasks.cancel_scope.cancel()
    if serving.cancelled_caught:
        # A thread waits for the editor's next line and cannot be woken.
        os._exit(0)


async def _cancel_on_signal(serving: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        await anext(signals)
        serving.cancel()
