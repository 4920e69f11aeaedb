"""Edits of protected files, which steer the agent; and closing notices on a workspace.

The host writes an edit after the user has seen its diff and allowed it. The command line prints closing notices last.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from pinfold.events import CallTool
from pinfold.sandbox import FileRefused
from pinfold.tools import BadCall

_EDITS = ("write_file", "edit_file")


class ProtectedEdit(Struct, frozen=True, kw_only=True):
    path: str
    before: bytes | None
    after: bytes

    def diff(self) -> str:
        from difflib import unified_diff

        old = (self.before or b"").decode("utf-8", "replace").splitlines(keepends=True)
        new = self.after.decode("utf-8", "replace").splitlines(keepends=True)
        return "".join(unified_diff(old, new, f"a/{self.path}", f"b/{self.path}"))


def find_protected_file(action: CallTool, workspace: Path) -> str:
    """Return the protected file that a call would change, relative to the workspace; empty if there is none."""
    args = action.given
    if action.tool == "apply_patch":
        named = (line for line in str(args.get("patch", "")).splitlines() if line.startswith(_HEADS))
        paths = [word for line in named for word in line.split() if "/" in word or "." in word]
        return next(
            (f for p in paths for f in (_match_protected(p, workspace), _match_protected(p[2:], workspace)) if f), ""
        )
    path = args.get("path")
    return _match_protected(path, workspace) if action.tool in _EDITS and isinstance(path, str) else ""


_HEADS = ("--- ", "+++ ", "*** ", "rename ", "copy ", "diff ")


def _match_protected(path: str, workspace: Path) -> str:
    from pinfold.sandbox.guards import protected_files as guards

    return ("\0" not in path and guards.find_protected_path(path, workspace)) or ""


def plan_edit(action: CallTool, workspace: Path) -> ProtectedEdit:
    """Compute what the call would make of the file as it is now. Raises BadCall."""
    from pinfold.sandbox.guards import protected_files as guards

    path = find_protected_file(action, workspace)
    if action.tool not in _EDITS:
        raise BadCall(f"{path} is protected; change it with edit_file or write_file, one file at a time")
    args = action.given
    try:
        before = guards.read_protected_file(path, workspace)
    except FileRefused as error:
        raise BadCall(str(error)) from error
    if action.tool == "write_file":
        return ProtectedEdit(path=path, before=before, after=str(args.get("content", "")).encode())
    old, new = str(args.get("old", "")).encode(), str(args.get("new", "")).encode()
    if before is None:
        raise BadCall(f"{path} does not exist; make it with write_file")
    found, wanted = before.count(old) if old else 0, args.get("expected_matches", 1)
    if found != wanted:
        raise BadCall(f"the old text occurs {found} times in {path}, not {wanted}; give more of it")
    return ProtectedEdit(path=path, before=before, after=before.replace(old, new))


def apply_edit(action: CallTool, workspace: Path) -> str:
    """Write the edit. Trust is bound to the content of a file, so this voids it. Raises BadCall."""
    from pinfold.sandbox.guards import protected_files as guards

    edit = plan_edit(action, workspace)
    try:
        guards.write_protected_file(edit.path, edit.after, workspace)
    except FileRefused as error:
        raise BadCall(str(error)) from error
    trust = "; Pinfold follows it again once the user trusts it" if guards.steers_agent(edit.path) else ""
    return f"wrote {edit.path}{trust}\n{edit.diff()}"


_lines: list[str] = []
_is_broken = False


def add_closing_notices(lines: Iterable[str], *, is_broken: bool = False) -> None:
    """Keep lines for the end. `is_broken`: the workspace is not as promised, which the exit code must show."""
    global _is_broken  # noqa: PLW0603 - of this process: a session closes after all that knew of it
    _lines.extend(lines)
    _is_broken = _is_broken or is_broken


def pop_closing_notices() -> tuple[list[str], bool]:
    """Return and clear the lines; also return True if a workspace is not as promised."""
    lines = list(dict.fromkeys(_lines))
    _lines.clear()
    return lines, _is_broken
