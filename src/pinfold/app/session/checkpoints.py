"""Git checkpoints: a commit of the workspace's files on a side ref after each cell that changed some, and the way back.

Git runs in the session only, as code of the session could. See docs/design/0016-undo.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.errors import CheckpointError
from pinfold.app.session import sidegit
from pinfold.engine import State
from pinfold.events import Checkpointed, Entry, Noticed, SessionChanged
from pinfold.log import Log
from pinfold.sandbox import CommandOutcome, Limits, SandboxUnavailable, Session
from pinfold.text import first_line, join_names, printable, redact

logger = logging.getLogger(__name__)
_MADE = rb"(made|same) ([0-9a-f]{40,64}) ([0-9a-f]{40,64})\n"
_COMMIT = r"[0-9a-f]{40,64}"
_GONE = 3
"""What COMPARE exits with when there is no such commit."""
_NAMED = 5
"""Paths that are told one by one."""
_NO_REPOSITORY = "the workspace is no git repository that the session can see (`git init` makes one)"


class Checkpoint(Struct, frozen=True, kw_only=True):
    number: int
    at: str
    message: str
    commit: str


def checkpoints_in(entries: Iterable[Entry]) -> tuple[Checkpoint, ...]:
    """Those a session has made, the first one first."""
    return tuple(
        Checkpoint(number=made.number, at=entry.at, message=made.message, commit=made.commit)
        for entry in entries
        if isinstance(made := entry.event, Checkpointed)
    )


class _Repository(Struct, frozen=True, kw_only=True):
    """As the live session sees it."""

    environment: dict[str, str]
    last: str = ""
    """The last commit, once it is known in this process."""
    tree: str = ""


class Checkpoints:
    """Of one session and its owner. Whether any are made is in the session's state, and may change at any time."""

    def __init__(
        self,
        journal: Log,
        past: Iterable[Entry],
        state: Callable[[], State],
        session: Callable[[], Awaitable[Session]],
        limits: Limits,
    ) -> None:
        self._id = journal.session
        self._journal = journal
        self._made = {made.number: made for made in checkpoints_in(past)}
        self._state = state
        self._session = session
        self._limit_s = limits.shell_s
        self._repository: _Repository | None = None
        self._given_up = False
        """And it has been said why."""
        journal.follow(self._follow)

    @asynccontextmanager
    async def around(self, code: str) -> AsyncGenerator[None]:
        """What changes files ends in a checkpoint, if it comes to its end and they are made."""
        if not self._state().checkpoints:
            self._repository, self._given_up = None, False
        elif self._repository is None:  # what was changed before the first cell is not its doing
            await self._try_checkpoint(f"Before cell {self._state().cells}")
        yield
        if self._state().checkpoints and self._repository is not None:
            await self._try_checkpoint(f"Cell {self._state().cells}: {printable(redact(first_line(code, 72)))}")

    async def restore(self, number: int) -> str:
        """Bring the files back; what came of it, in words. Raises CheckpointError, and then nothing is lost: what was there is in a checkpoint."""
        target = self._made.get(number)
        if target is None:
            known = f"there are 1 to {max(self._made)}" if self._made else "none was made"
            raise CheckpointError(f"there is no checkpoint {number} of {self._id}; {known}")
        present = await self._make(f"Before checkpoint {number} was restored")
        before = max(self._made)
        changed, left = await self._apply(present, target.commit)
        if changed:
            await self._make(f"Checkpoint {number} restored", restored=number)
        if not changed and not left:
            return f"the files are those of checkpoint {number} already"
        text = (
            f"checkpoint {number} is restored, files changed: {changed}; what was there before is checkpoint {before}"
        )
        if not left:
            return text
        named = join_names([*map(printable, left)], _NAMED)
        return f"{text}. Left as they are, because no checkpoint holds what is there: {named}"

    def _follow(self, entry: Entry) -> None:
        if isinstance(entry.event, SessionChanged) and entry.event.checkpoints is not None:
            self._given_up = False
        self._made |= {made.number: made for made in checkpoints_in([entry])}

    async def _try_checkpoint(self, message: str) -> None:
        """A checkpoint that cannot be made costs no cell anything; it is said once, and then given up."""
        if self._given_up:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self._make(message)
        except SandboxUnavailable as error:
            logger.warning("no checkpoint of %s: %s", self._id, error)  # the next cell says what happened
        except CheckpointError as error:
            self._given_up = True
            await self._journal.append(Noticed(text=f"Git checkpoints are on, but none are made: {error}."))

    async def _find_repository(self) -> _Repository:
        if not (await self._session()).capabilities.commands:
            raise CheckpointError("this sandbox cannot run programs beside cells")
        outcome = await self._run(sidegit.BEGIN, [], sidegit.git_environment())
        if outcome.status != "ok":
            missing = b"git: not found" in outcome.stderr or b"git: command not found" in outcome.stderr
            raise CheckpointError(
                "there is no git in the session" if missing or outcome.code is None else _NO_REPOSITORY
            )
        gitdir, *keys = outcome.stdout.decode("utf-8", "surrogateescape").split("\0")
        drivers = {key[len("filter.") :].rpartition(".")[0] for key in keys if key.startswith("filter.")}
        return _Repository(environment=sidegit.git_environment(gitdir, sorted(drivers - {""})))

    async def _make(self, message: str, restored: int | None = None) -> str:
        """The commit that holds the files as they are; a new one only if the last does not."""
        repository = self._repository or await self._find_repository()
        self._repository = None  # until its index is known to be the commit's
        number = max(self._made, default=0) + 1
        text = f"{message}\n\nPinfold-Session: {self._id}\nPinfold-Checkpoint: {number}\n".encode()
        ref, secrets = f"{sidegit.REF}{self._id}", sidegit.secret_pathspecs()
        words = [ref, repository.last, repository.tree, "", *secrets]
        outcome = await self._run(sidegit.MAKE, words, repository.environment, text)
        if outcome.status == "error":
            # The program may have broken the index, or a crash left a lock; both are only the session's.
            outcome = await self._run(sidegit.MAKE, [ref, "", "", "again", *secrets], repository.environment, text)
        told = re.fullmatch(_MADE, outcome.stdout)
        if outcome.status != "ok" or told is None:
            raise self._error(outcome)
        what, commit, tree = (word.decode() for word in told.groups())
        self._repository = replace(repository, last=commit, tree=tree)
        if what == "made":
            made = Checkpointed(number=number, commit=commit, message=message, restored=restored)
            await self._journal.append(made)
        return commit

    async def _apply(self, present: str, target: str) -> tuple[int, tuple[str, ...]]:
        """How many files it wrote or removed, and which it had to leave."""

        async def run(script: str, paths: Iterable[bytes], *words: str) -> set[bytes]:
            outcome = await self._run(script, words, environment, b"".join(path + b"\0" for path in paths))
            if outcome.status != "ok":
                raise self._error(outcome)
            return set(outcome.stdout.split(b"\0")) - {b""}

        environment = self._repository.environment if self._repository else {}
        if not re.fullmatch(_COMMIT, target):
            raise CheckpointError(f"{target!r} is no commit")
        compared = await self._run(sidegit.COMPARE, (present, target, *sidegit.secret_pathspecs()), environment)
        if compared.code == _GONE:
            raise CheckpointError(f"its commit {target[:12]} is no longer in the repository")
        if compared.status != "ok" or compared.dropped_bytes:
            raise self._error(compared)
        changes = sidegit.parse_changes(compared.stdout)
        large = await run(sidegit.TOO_LARGE, [*changes.gone, *changes.changed])
        gone = [path for path in changes.gone if path not in large]
        await run(sidegit.REMOVE, gone)
        await run(sidegit.REMOVE_FOLDERS, sorted({path.rpartition(b"/")[0] for path in gone} - {b""}))
        standing = await run(sidegit.IN_THE_WAY, changes.new)
        written = [path for path in changes.changed if path not in large]
        written += [path for path in changes.new if path not in standing]
        await run(sidegit.WRITE, written, target)
        left = sorted({*large, *standing, *changes.nested})
        return len(gone) + len(written), tuple(path.decode("utf-8", "replace") for path in left)

    async def _run(
        self, script: str, words: Iterable[str], environment: dict[str, str], stdin: bytes = b""
    ) -> CommandOutcome:
        argv = ["/bin/sh", "-euc", script, "sh", *words]
        return await (await self._session()).command(argv, timeout_s=self._limit_s, env=environment, stdin=stdin)

    def _error(self, outcome: CommandOutcome) -> CheckpointError:
        if outcome.status == "timeout":
            return CheckpointError(f"git took more than {self._limit_s:g} s")
        said = outcome.stderr.decode("utf-8", "replace").strip().splitlines()
        return CheckpointError(printable(first_line(said[-1])) if said else f"git exited with {outcome.code}")
