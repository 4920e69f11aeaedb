"""A command on its way to a guest: checked, encoded, and what it writes decoded as it comes."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pinfold.sandbox.contract import COMMAND_BYTES, CommandOutcome, FileRefused, Limits, OnOutput, Stream
from pinfold.sandbox.kernel.seccomp import compile_read_only_filter
from pinfold.sandbox.session.channel import RAN_BYTES, OnPiece, Reply
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.output import OutputListener

END_S = 5.0
"""For processes to be ended that were left running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    name: str
    """Of the program."""
    head: bytes
    stdin: bytes
    timeout_s: float
    heard: CommandListener | None

    @classmethod
    def create(
        cls,
        argv: Sequence[str],
        *,
        limits: Limits,
        timeout_s: float,
        env: Mapping[str, str] | None,
        stdin: bytes,
        workdir: str,
        on_output: OnOutput | None,
        read_only: bool = False,
    ) -> Self:
        """Raises FileRefused."""
        if not argv:
            raise FileRefused("a command needs the name of a program")
        if len(stdin) > limits.file_bytes:
            raise FileRefused(f"{argv[0]!r} has {len(stdin)} bytes of input; the limit is {limits.file_bytes}")
        environment = None if env is None else dict(env)
        bound = compile_read_only_filter().hex() if read_only else ""
        return cls(
            name=argv[0],
            head=_head(argv=[*argv], env=environment, workdir=workdir, timeout_s=timeout_s, read_only=bound),
            stdin=stdin,
            timeout_s=timeout_s,
            heard=None if on_output is None else CommandListener(on_output),
        )

    @property
    def body(self) -> bytes:
        return self.head + self.stdin

    @property
    def on_piece(self) -> OnPiece | None:
        return None if self.heard is None else self.heard.piece

    def finish(self) -> None:
        """Stop calling `on_output`. Raises what it raised."""
        if self.heard is not None:
            self.heard.finish()


class CommandListener(OutputListener):
    """Of what a command writes, as bytes."""

    def __init__(self, on_output: OnOutput) -> None:
        super().__init__(on_output)
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders: dict[Stream, codecs.IncrementalDecoder] = {
            "stdout": decoder("replace"),
            "stderr": decoder("replace"),
        }

    def piece(self, stream: Stream, data: bytes) -> None:
        self.tell(stream, self._decoders[stream].decode(data))

    def finish(self) -> None:
        for stream, decoder in self._decoders.items():
            self.tell(stream, decoder.decode(b"", final=True))
        super().finish()


async def end_group(guest: Guest, pid: int) -> bool:
    """What an earlier command left running, as far as it is still in its process group. Whether the guest is still there.

    The number may have become another's since. A process can only join a group of
    its own session, so the one that has joined it ends the right one.
    """
    head = _head(argv=["/bin/sh", "-c", "kill -KILL 0"], env=None, workdir="", timeout_s=END_S, group=pid)
    end = await guest.ask("command", head, RAN_BYTES, 2 * END_S, head=len(head), tell=0)
    return isinstance(end, Reply)


def _head(*, group: int = 0, **request: object) -> bytes:
    """`group`: the process group it joins; 0 is one of its own."""
    return json.dumps({**request, "group": group, "limit": COMMAND_BYTES}).encode()


def not_run(why: str) -> CommandOutcome:
    """Of a command that was not run, or whose end is not known."""
    return CommandOutcome(status="error", stderr=f"{why}\n".encode("utf-8", "backslashreplace"))
