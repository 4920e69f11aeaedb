"""Ctrl-C, and the signals that have the same effect."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from types import FrameType


def stop_signals() -> list[signal.Signals]:
    """List the signals that end a command. SIGHUP is not one under `nohup`: the command outlives its terminal."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


def interrupt_on_stop_signals() -> None:
    """Have them all interrupt the command as Ctrl-C does, so that sessions are closed. Ignored signals stay ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    on_ctrl_c = signal.getsignal(signal.SIGINT)  # asyncio sets one that cancels the main task
    (on_ctrl_c if callable(on_ctrl_c) else signal.default_int_handler)(number, frame)


@contextmanager
def receive_stop_signals() -> Generator[AsyncIterator[signal.Signals]]:
    """Receive them within the block, instead of a KeyboardInterrupt."""
    import anyio  # not needed for `pinfold --help`

    before = {number: signal.getsignal(number) for number in stop_signals()}
    try:
        with anyio.open_signal_receiver(*before) as signals:
            yield signals
    finally:
        for number, handler in before.items():  # asyncio would let them end the process at once
            signal.signal(number, handler)
