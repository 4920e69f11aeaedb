"""Git checkpoints: a commit of the workspace's files on a side ref after each cell that changed some, and the way back.

Git runs in the session only, as code of the session could. See docs/design/0016-undo.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable

import anyio
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.errors import CheckpointError
from pinfold.app.session import sidegit
from pinfold.engine import Journal, State
from pinfold.events import Checkpointed, Entry, Noticed, SessionChanged, SessionId
from pinfold.sandbox import CommandOutcome, SandboxUnavailable, Session
from pinfold.text import first_line, join_names, printable, redact

logger = logging.getLogger(__name__)
_MADE = rb"(made|same) ([0-9a-f]{40,64}) ([0-9a-f]{40,64})\n"
_COMMIT = r"[0-9a-f]{40,64}"
_GONE = 3
"""What COMPARE exits with when there is no such commit."""
_NAMED = 5
"""Paths that are told one by one."""
_NO_COMMANDS = "this sandbox cannot run programs beside cells"
_NO_GIT = "there is no git in the session"
_NO_REPOSITORY = "the workspace is no git repository that the session can see (`git init` makes one)"


class Checkpoint(Struct, frozen=True, kw_only=True):
    number: int
    at: str
    message: str
    commit: str


class Restored(Struct, frozen=True, kw_only=True):
    """What came of going back to a checkpoint."""

    number: int
    before: int
    """The checkpoint that holds the files as they were until then."""
    changed: int
    """How many files were written or removed."""
    left: tuple[str, ...] = ()
    """Paths that stayed as they are: something stands there that no checkpoint holds."""

    def __str__(self) -> str:
        if not self.changed and not self.left:
            return f"the files are those of checkpoint {self.number} already"
        text = f"checkpoint {self.number} is restored, files changed: {self.changed}"
        text += f"; what was there before is checkpoint {self.before}"
        if not self.left:
            return text
        named = join_names([*map(printable, self.left)], _NAMED)
        return f"{text}. Left as they are, because no checkpoint holds what is there: {named}"


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
        id: SessionId,  # noqa: A002
        journal: Journal,
        past: Iterable[Entry],
        state: Callable[[], State],
    ) -> None:
        self._id = id
        self._journal = journal
        self._made = {made.number: made for made in checkpoints_in(past)}
        self._state = state
        self._repository: _Repository | None = None
        self._given_up = False
        """And it has been said why."""
        journal.follow(self._follow)

    async def before(self, session: Session, limit_s: float) -> None:
        """A cell is about to run: what was changed before the first one is not its doing."""
        if not self._state().checkpoints:
            self._repository, self._given_up = None, False
        elif self._repository is None:
            await self._try_checkpoint(session, f"Before cell {self._state().cells}", limit_s)

    async def after(self, session: Session, code: str, limit_s: float) -> None:
        """A cell has ended, or a command."""
        if self._state().checkpoints and self._repository is not None:
            await self._try_checkpoint(session, f"Cell {self._state().cells}: {_summarize_code(code)}", limit_s)

    async def restore(self, session: Session, number: int, limit_s: float) -> Restored:
        """Bring the files back. Raises CheckpointError, and then nothing is lost: what was there is in a checkpoint."""
        target = self._made.get(number)
        if target is None:
            known = f"there are 1 to {max(self._made)}" if self._made else "none was made"
            raise CheckpointError(f"there is no checkpoint {number} of {self._id}; {known}")
        self._repository = self._repository or await self._find_repository(session, limit_s)
        present = await self._make(session, f"Before checkpoint {number} was restored", limit_s)
        before = max(self._made)
        changed, left = await self._apply(session, present, target.commit, limit_s)
        if changed:
            await self._make(session, f"Checkpoint {number} restored", limit_s, restored=number)
        return Restored(number=number, before=before, changed=changed, left=left)

    def _follow(self, entry: Entry) -> None:
        if isinstance(entry.event, SessionChanged) and entry.event.checkpoints is not None:
            self._given_up = False
        if isinstance(entry.event, Checkpointed):
            self._made |= {made.number: made for made in checkpoints_in([entry])}

    async def _try_checkpoint(self, session: Session, message: str, limit_s: float) -> None:
        """A checkpoint that cannot be made costs no cell anything; it is said once, and then given up."""
        if self._given_up:
            return
        try:
            with anyio.CancelScope(shield=True):
                self._repository = self._repository or await self._find_repository(session, limit_s)
                await self._make(session, message, limit_s)
        except SandboxUnavailable as error:
            logger.warning("no checkpoint of %s: %s", self._id, error)  # the next cell says what happened
        except CheckpointError as error:
            self._given_up = True
            await self._journal.append(Noticed(text=f"Git checkpoints are on, but none are made: {error}."))

    async def _find_repository(self, session: Session, limit_s: float) -> _Repository:
        if not session.capabilities.commands:
            raise CheckpointError(_NO_COMMANDS)
        outcome = await _run_script(session, sidegit.BEGIN, [], sidegit.git_environment(), limit_s)
        if outcome.status != "ok":
            missing = b"git: not found" in outcome.stderr or b"git: command not found" in outcome.stderr
            raise CheckpointError(_NO_GIT if missing or outcome.code is None else _NO_REPOSITORY)
        gitdir, *keys = outcome.stdout.decode("utf-8", "surrogateescape").split("\0")
        drivers = {key[len("filter.") :].rpartition(".")[0] for key in keys if key.startswith("filter.")}
        return _Repository(environment=sidegit.git_environment(gitdir, sorted(drivers - {""})))

    async def _make(self, session: Session, message: str, limit_s: float, restored: int | None = None) -> str:
        """The commit that holds the files as they are; a new one only if the last does not."""
        repository, self._repository = self._repository, None  # until its index is known to be the commit's
        if repository is None:
            raise CheckpointError(_NO_REPOSITORY)
        number = max(self._made, default=0) + 1
        text = f"{message}\n\nPinfold-Session: {self._id}\nPinfold-Checkpoint: {number}\n"
        known = [repository.last, repository.tree]
        words = [f"{sidegit.REF}{self._id}", *known, "", *sidegit.secret_pathspecs()]
        outcome = await _run_script(session, sidegit.MAKE, words, repository.environment, limit_s, stdin=text.encode())
        if outcome.status == "error":
            # The program may have broken the index, or a crash left a lock; both are only the session's.
            words = [words[0], "", "", "again", *sidegit.secret_pathspecs()]
            outcome = await _run_script(
                session, sidegit.MAKE, words, repository.environment, limit_s, stdin=text.encode()
            )
        told = re.fullmatch(_MADE, outcome.stdout)
        if outcome.status != "ok" or told is None:
            raise CheckpointError(_describe_failure(outcome, limit_s))
        what, commit, tree = (word.decode() for word in told.groups())
        self._repository = replace(repository, last=commit, tree=tree)
        if what == "made":
            made = Checkpointed(number=number, commit=commit, message=message, restored=restored)
            await self._journal.append(made)
        return commit

    async def _apply(self, session: Session, present: str, target: str, limit_s: float) -> tuple[int, tuple[str, ...]]:
        """How many files it wrote or removed, and which it had to leave."""

        async def run(script: str, paths: Iterable[bytes], *words: str) -> bytes:
            listed = b"".join(path + b"\0" for path in paths)
            outcome = await _run_script(session, script, words, environment, limit_s, stdin=listed)
            if outcome.status != "ok":
                raise CheckpointError(_describe_failure(outcome, limit_s))
            return outcome.stdout

        environment = self._repository.environment if self._repository else {}
        if not re.fullmatch(_COMMIT, target):
            raise CheckpointError(f"{target!r} is no commit")
        words = (present, target, *sidegit.secret_pathspecs())
        compared = await _run_script(session, sidegit.COMPARE, words, environment, limit_s)
        if compared.code == _GONE:
            raise CheckpointError(f"its commit {target[:12]} is no longer in the repository")
        if compared.status != "ok" or compared.dropped_bytes:
            raise CheckpointError(_describe_failure(compared, limit_s))
        changes = sidegit.parse_changes(compared.stdout)
        large = _split_paths(await run(sidegit.TOO_LARGE, [*changes.gone, *changes.changed]))
        gone = [path for path in changes.gone if path not in large]
        await run(sidegit.REMOVE, gone)
        await run(sidegit.REMOVE_FOLDERS, sorted({parent for path in gone if (parent := _folder(path))}))
        standing = _split_paths(await run(sidegit.IN_THE_WAY, changes.new))
        written = [path for path in changes.changed if path not in large]
        written += [path for path in changes.new if path not in standing]
        await run(sidegit.WRITE, written, target)
        left = sorted({*large, *standing, *changes.nested})
        return len(gone) + len(written), tuple(path.decode("utf-8", "replace") for path in left)


async def _run_script(
    session: Session,
    script: str,
    words: Iterable[str],
    environment: dict[str, str],
    limit_s: float,
    *,
    stdin: bytes = b"",
) -> CommandOutcome:
    argv = ["/bin/sh", "-euc", script, "sh", *words]
    return await session.command(argv, timeout_s=limit_s, env=environment, stdin=stdin)


def _split_paths(paths: bytes) -> set[bytes]:
    return set(paths.split(b"\0")) - {b""}


def _folder(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def _describe_failure(outcome: CommandOutcome, limit_s: float) -> str:
    if outcome.status == "timeout":
        return f"git took more than {limit_s:g} s"
    said = outcome.stderr.decode("utf-8", "replace").strip().splitlines()
    return printable(first_line(said[-1])) if said else f"git exited with {outcome.code}"


def _summarize_code(code: str) -> str:
    return printable(redact(first_line(code, 72)))
