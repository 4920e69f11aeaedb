"""Git checkpoints: commits of the workspace's files on a side ref after each cell that changed some, and their restore.

Git runs only inside the session, with no more rights than its code. The user's index, HEAD and branches are never
written: every step uses its own index below the session's TMPDIR, and the only ref it moves is the session's.
See docs/design/0016-undo.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.errors import CheckpointError
from pinfold.engine import State
from pinfold.events import Checkpointed, Entry, Noticed, SessionChanged
from pinfold.log import Log
from pinfold.sandbox import CommandOutcome, Limits, SandboxUnavailable, Session
from pinfold.sandbox.guards.named_files import NAMES as SECRET_NAMES
from pinfold.text import first_line, join_names, printable, redact

REF = "refs/pinfold/checkpoints/"
LARGEST_KB = 128 << 10
"""A file larger than this is in no checkpoint: git would store all of it each time it changes."""
_OFF = (
    *("core.fsmonitor", "core.untrackedCache", "core.splitIndex", "core.sparseCheckout", "core.logAllRefUpdates"),
    *("core.autocrlf", "core.safecrlf", "commit.gpgSign", "advice.addEmbeddedRepo", "submodule.recurse"),
)
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "i18n.commitEncoding": "UTF-8",
    "gc.auto": "0",
    "core.fileMode": "true",
    "core.symlinks": "true",
    **dict.fromkeys(_OFF, "false"),
}
"""Override settings of the repository that would run programs, or keep files out of a checkpoint."""
_SWITCHES = ("GIT_CONFIG_NOSYSTEM", "GIT_ATTR_NOSYSTEM", "GIT_NO_LAZY_FETCH", "GIT_NO_REPLACE_OBJECTS")
_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}

_SCRIPT = Path(__file__).with_name("checkpoints.sh")
Step: TypeAlias = Literal["begin", "make", "compare", "too-large", "in-the-way", "remove", "remove-folders", "write"]
"""Steps of the script."""


def secret_pathspecs() -> list[str]:
    """Return pathspecs of secrets, which are in no checkpoint: they read as empty inside, or belong in no history."""
    return [f":(exclude,icase,glob)**/{name}{rest}" for name in SECRET_NAMES for rest in ("", "/**")]


def git_environment(gitdir: str = ".git", drivers: Iterable[str] = ()) -> dict[str, str]:
    """Return the whole environment of git. `drivers`: filter drivers of the repository, which must not run."""
    settings = dict(_SETTINGS)
    for driver in drivers:
        settings |= {f"filter.{driver}.{key}": value for key, value in _FILTER.items()}
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "LARGEST": str(LARGEST_KB),
        "GIT_DIR": gitdir,
        "GIT_WORK_TREE": ".",
        "GIT_TERMINAL_PROMPT": "0",
        **dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), "/dev/null"),
        **dict.fromkeys(_SWITCHES, "1"),
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "Pinfold", f"GIT_{who}_EMAIL": "pinfold@localhost"}
    for number, (key, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment


class Changes(Struct, frozen=True, kw_only=True):
    """What turns the files of one checkpoint into those of another. Paths are relative to the workspace."""

    gone: list[bytes]
    changed: list[bytes]
    new: list[bytes]
    nested: list[bytes]
    """Nested repositories: a checkpoint holds only their commit, so they are not changed."""


def parse_changes(raw: bytes) -> Changes:
    """Parse the output of `git diff-tree --raw -z`: untrusted, and only ever given back to the session."""
    found = Changes(gone=[], changed=[], new=[], nested=[])
    words = raw.split(b"\0")
    for head, path in zip(words[::2], words[1::2], strict=False):
        if head.count(b" ") != 4:
            continue
        old, new, *_, status = head.lstrip(b":").split(b" ")
        if b"160000" in (old, new):
            found.nested.append(path)
        elif status == b"D":
            found.gone.append(path)
        else:
            (found.new if status == b"A" else found.changed).append(path)
    return found


logger = logging.getLogger(__name__)
_MADE = rb"(made|same) ([0-9a-f]{40,64}) ([0-9a-f]{40,64})\n"
_COMMIT = r"[0-9a-f]{40,64}"
_GONE = 3
"""Exit code of the step `compare` if there is no such commit."""
_NAMED = 5
"""Most paths that a message names."""
_NO_REPOSITORY = "the session sees no git repository in the workspace; `git init` makes one"


class Checkpoint(Struct, frozen=True, kw_only=True):
    number: int
    at: str
    message: str
    commit: str


def checkpoints_in(entries: Iterable[Entry]) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that a session has made, oldest first."""
    return tuple(
        Checkpoint(number=made.number, at=entry.at, message=made.message, commit=made.commit)
        for entry in entries
        if isinstance(made := entry.event, Checkpointed)
    )


class _Repository(Struct, frozen=True, kw_only=True):
    """The repository, as the live session sees it."""

    environment: dict[str, str]
    last: str = ""
    """The last commit; empty until it is known in this process."""
    tree: str = ""


class Checkpoints:
    """Makes and restores checkpoints of one session. Its state says whether any are made, which can change any time."""

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
        """True once making one has failed and the user was told why."""
        journal.follow(self._follow)

    @asynccontextmanager
    async def around(self, code: str) -> AsyncGenerator[None]:
        """Make a checkpoint after the code in this context, if checkpoints are on and it does not raise."""
        if not self._state().checkpoints:
            self._repository, self._given_up = None, False
        elif self._repository is None:  # changes from before the first cell are not part of that cell
            await self._try_checkpoint(f"Before cell {self._state().cells}")
        yield
        if self._state().checkpoints and self._repository is not None:
            await self._try_checkpoint(f"Cell {self._state().cells}: {printable(redact(first_line(code, 72)))}")

    async def restore(self, number: int) -> str:
        """Restore the files; return the result in words.

        Raises CheckpointError. Even then nothing is lost: a checkpoint holds what was there.
        """
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
        """Make a checkpoint. A failure does not affect the cell: it is reported once, and no more are made."""
        if self._given_up:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self._make(message)
        except SandboxUnavailable as error:
            logger.warning("no checkpoint of %s: %s", self._id, error)  # the next cell reports it
        except CheckpointError as error:
            self._given_up = True
            await self._journal.append(Noticed(text=f"Git checkpoints are on, but none are made: {error}."))

    async def _find_repository(self) -> _Repository:
        if not (await self._session()).capabilities.commands:
            raise CheckpointError("this sandbox cannot run programs beside cells")
        outcome = await self._run("begin", [], git_environment())
        if outcome.status != "ok":
            missing = b"git: not found" in outcome.stderr or b"git: command not found" in outcome.stderr
            raise CheckpointError(
                "there is no git in the session" if missing or outcome.code is None else _NO_REPOSITORY
            )
        gitdir, *keys = outcome.stdout.decode("utf-8", "surrogateescape").split("\0")
        drivers = {key[len("filter.") :].rpartition(".")[0] for key in keys if key.startswith("filter.")}
        return _Repository(environment=git_environment(gitdir, sorted(drivers - {""})))

    async def _make(self, message: str, restored: int | None = None) -> str:
        """Return a commit that holds the files as they are; a new one only if the last does not hold them."""
        repository = self._repository or await self._find_repository()
        self._repository = None  # until the index is known to match the commit
        number = max(self._made, default=0) + 1
        text = f"{message}\n\nPinfold-Session: {self._id}\nPinfold-Checkpoint: {number}\n".encode()
        ref, secrets = f"{REF}{self._id}", secret_pathspecs()
        words = [ref, repository.last, repository.tree, "", *secrets]
        outcome = await self._run("make", words, repository.environment, text)
        if outcome.status == "error":
            # Code may have broken the index, or a crash left a lock. Both belong to the session alone: start anew.
            outcome = await self._run("make", [ref, "", "", "again", *secrets], repository.environment, text)
        reply = re.fullmatch(_MADE, outcome.stdout)
        if outcome.status != "ok" or reply is None:
            raise self._error(outcome)
        what, commit, tree = (word.decode() for word in reply.groups())
        self._repository = replace(repository, last=commit, tree=tree)
        if what == "made":
            made = Checkpointed(number=number, commit=commit, message=message, restored=restored)
            await self._journal.append(made)
        return commit

    async def _apply(self, present: str, target: str) -> tuple[int, tuple[str, ...]]:
        """Change the files to those of `target`. Returns how many were written or removed, and which were left."""

        async def run(step: Step, paths: Iterable[bytes], *words: str) -> set[bytes]:
            outcome = await self._run(step, words, environment, b"".join(path + b"\0" for path in paths))
            if outcome.status != "ok":
                raise self._error(outcome)
            return set(outcome.stdout.split(b"\0")) - {b""}

        environment = self._repository.environment if self._repository else {}
        if not re.fullmatch(_COMMIT, target):
            raise CheckpointError(f"{target!r} is not a commit")
        compared = await self._run("compare", (present, target, *secret_pathspecs()), environment)
        if compared.code == _GONE:
            raise CheckpointError(f"its commit {target[:12]} is no longer in the repository")
        if compared.status != "ok" or compared.dropped_bytes:
            raise self._error(compared)
        changes = parse_changes(compared.stdout)
        large = await run("too-large", [*changes.gone, *changes.changed])
        gone = [path for path in changes.gone if path not in large]
        await run("remove", gone)
        await run("remove-folders", sorted({path.rpartition(b"/")[0] for path in gone} - {b""}))
        standing = await run("in-the-way", changes.new)
        written = [path for path in changes.changed if path not in large]
        written += [path for path in changes.new if path not in standing]
        await run("write", written, target)
        left = sorted({*large, *standing, *changes.nested})
        return len(gone) + len(written), tuple(path.decode("utf-8", "replace") for path in left)

    async def _run(
        self, step: Step, words: Iterable[str], environment: dict[str, str], stdin: bytes = b""
    ) -> CommandOutcome:
        argv = ["/bin/sh", "-euc", _SCRIPT.read_text("utf-8"), "sh", step, *words]
        return await (await self._session()).command(argv, timeout_s=self._limit_s, env=environment, stdin=stdin)

    def _error(self, outcome: CommandOutcome) -> CheckpointError:
        if outcome.status == "timeout":
            return CheckpointError(f"git took more than {self._limit_s:g} s")
        said = outcome.stderr.decode("utf-8", "replace").strip().splitlines()
        return CheckpointError(printable(first_line(said[-1])) if said else f"git exited with {outcome.code}")
