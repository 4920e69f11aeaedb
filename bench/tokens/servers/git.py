"""A repository on this machine, told in the words of git itself."""

from __future__ import annotations

from bench.tokens.servers.records import changes, reads

from pinfold.tools import BadCall

_COMMITS = (
    ("e5f0a13", "yuki", "2026-02-27", "Exports are streamed"),
    ("7d2b9c6", "lena", "2026-02-26", "Search keeps the filter when a page is turned"),
    ("b19e4f8", "priya", "2026-02-24", "Retry webhooks three times"),
    ("a81d9f0", "tomas", "2026-02-23", "Sessions end after a day"),
    ("0c77e54", "priya", "2026-02-20", "Invoices show the tax number"),
    ("3a6d802", "marco", "2026-02-19", "Uploads over 2 GB are refused with a reason"),
    ("9be07d1", "lena", "2026-02-17", "Search finds words with hyphens"),
    ("4f1c2ab", "yuki", "2026-02-16", "Export keeps the order of columns"),
    ("d90ab37", "tomas", "2026-02-12", "Release 1.4"),
    ("6c1e5d9", "marco", "2026-02-11", "Audit log in UTC"),
    ("f27b8e0", "priya", "2026-02-09", "Webhook secrets can be rotated"),
    ("18c4d6e", "lena", "2026-02-06", "Fewer queries on the billing page"),
)
_DIFF = {
    "src/upload.py": (
        "@@ -41,7 +41,7 @@ def accept(part: Part) -> Stored:\n     size = part.headers.length\n"
        "-    if size > LIMIT:\n-        raise TooLarge()\n+    if size > LIMIT:\n"
        '+        raise TooLarge(f"{size} bytes; at most {LIMIT}")\n     return store(part)\n'
    ),
    "src/limits.py": "@@ -3,2 +3,2 @@\n-LIMIT = 2 * 1024**3\n+LIMIT = 4 * 1024**3\n TIMEOUT = 30\n",
}


class Git:
    def __init__(self) -> None:
        self._commits = list(_COMMITS)
        self._branches = ["main", "faster-export", "upload-limits"]
        self._branch = "upload-limits"
        self._changed = dict.fromkeys(_DIFF, False)

    @reads
    def git_status(self) -> str:
        """Shows the working tree status: the branch, what is staged and what is not."""
        staged = [path for path, is_staged in self._changed.items() if is_staged]
        others = [path for path, is_staged in self._changed.items() if not is_staged]
        told = [f"On branch {self._branch}"]
        if staged:
            told += ["Changes to be committed:", *(f"\tmodified:   {path}" for path in staged)]
        if others:
            told += ["Changes not staged for commit:", *(f"\tmodified:   {path}" for path in others)]
        return "\n".join([*told, "" if self._changed else "nothing to commit, working tree clean"])

    @reads
    def git_log(self, max_count: int = 10, author: str | None = None, since: str | None = None) -> str:
        """Shows the commit logs, newest first, each with its hash, author, date and message.

        Args:
            max_count: Maximum number of commits to show.
            author: Only commits of this author.
            since: Only commits of this day or later, such as 2026-01-31.
        """
        found = [
            f"commit {key}\nAuthor: {who}\nDate:   {day}\n\n    {message}\n"
            for key, who, day, message in self._commits
            if author in (None, who) and (since is None or day >= since)
        ]
        return "\n".join(found[:max_count])

    @reads
    def git_diff_unstaged(self, context_lines: int = 3) -> str:
        """Shows changes in the working directory that are not yet staged.

        Args:
            context_lines: Number of context lines to show.
        """
        return self._diff(context_lines, is_staged=False)

    @reads
    def git_diff_staged(self, context_lines: int = 3) -> str:
        """Shows changes that are staged for commit.

        Args:
            context_lines: Number of context lines to show.
        """
        return self._diff(context_lines, is_staged=True)

    @reads
    def git_show(self, revision: str) -> str:
        """Shows the contents of a commit: who made it, when, its message and the files it touched.

        Args:
            revision: The hash of the commit.
        """
        for key, who, day, message in self._commits:
            if key.startswith(revision):
                touched = message.split(maxsplit=1)[0].lower()
                return f"commit {key}\nAuthor: {who}\nDate:   {day}\n\n    {message}\n\n src/{touched}.py | {len(message) % 23 + 2} +-\n"
        raise BadCall(f"fatal: bad object {revision}")

    @changes
    def git_add(self, files: list[str]) -> str:
        """Adds file contents to the staging area.

        Args:
            files: Paths of the files to stage.
        """
        for path in files:
            if path not in self._changed:
                raise BadCall(f"fatal: pathspec {path!r} did not match any files")
            self._changed[path] = True
        return "Files staged successfully"

    @changes
    def git_commit(self, message: str) -> str:
        """Records changes to the repository: what is staged becomes a commit on the current branch.

        Args:
            message: The commit message.
        """
        staged = [path for path, is_staged in self._changed.items() if is_staged]
        if not staged:
            raise BadCall("nothing added to commit; stage files with git_add first")
        self._changed = {path: False for path, is_staged in self._changed.items() if not is_staged}
        key = f"{len(self._commits) * 65_537 * 977:07x}"[:7]
        self._commits.insert(0, (key, "you", "2026-03-02", message))
        return f"Changes committed successfully with hash {key}"

    @changes
    def git_create_branch(self, branch_name: str, base_branch: str = "") -> str:
        """Creates a new branch from an optional base branch.

        Args:
            branch_name: Name of the new branch.
            base_branch: The branch to begin at; the current one unless given.
        """
        if branch_name in self._branches:
            raise BadCall(f"fatal: a branch named {branch_name!r} already exists")
        self._branches.append(branch_name)
        return f"Created branch '{branch_name}' from '{base_branch or self._branch}'"

    @changes
    def git_checkout(self, branch_name: str) -> str:
        """Switches branches.

        Args:
            branch_name: Name of the branch to check out.
        """
        if branch_name not in self._branches:
            raise BadCall(f"error: pathspec {branch_name!r} did not match any branch")
        self._branch = branch_name
        return f"Switched to branch '{branch_name}'"

    @reads
    def git_branch(self) -> str:
        """Lists the branches of the repository; the current one is marked."""
        return "\n".join(f"{'*' if one == self._branch else ' '} {one}" for one in self._branches)

    def _diff(self, context_lines: int, *, is_staged: bool) -> str:
        if context_lines < 0:
            raise BadCall(f"fatal: -U{context_lines}: not a number of lines")
        return "".join(
            f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n{_DIFF[path]}"
            for path, there in self._changed.items()
            if there == is_staged
        )
