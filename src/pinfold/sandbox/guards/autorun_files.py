"""Files that a program of the user's obeys by itself: the one table of what a session must not plant. See docs/design/0012.

Anything that would run without its program asking first is put back. Where the program asks its own user, or runs only
on the user's command, the user is told.
"""

from __future__ import annotations

import functools
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.sandbox.guards.name_patterns import NamePatterns
from pinfold.sandbox.guards.secret_files import is_installed

Response: TypeAlias = Literal["put back", "tell"]


class Row(Struct, frozen=True):
    """`pattern` is matched with the last parts of a path, at any depth; `*` stays within one part.

    What it names is one thing, whatever lies below it. One that ends with "/" is a folder.
    """

    pattern: str
    program: str
    """Who obeys it."""
    response: Response = "put back"
    only_in: Literal["", "environment", "git"] = ""
    """`environment`: counts below a folder with `pyvenv.cfg`, and is only told in one that the session made.
    `git`: plain ones may be made, and are guarded from then on (see `_gitdir.py`)."""


def _rows(
    program: str, patterns: str, response: Response = "put back", only_in: Literal["", "environment", "git"] = ""
) -> tuple[Row, ...]:
    return tuple(Row(pattern, program, response, only_in) for pattern in patterns.split())


GIT_FOLDER = Row(".git/", "git", only_in="git")
"""Stands for every shape of a git folder: `.git`, a `.git` file, and any folder with HEAD, objects and refs."""

TABLE: tuple[Row, ...] = (
    GIT_FOLDER,
    *_rows("git", ".gitconfig .config/git/"),
    *_rows("git", ".gitattributes .gitmodules", "tell"),
    *_rows("Mercurial", ".hg/hgrc .hgrc"),
    *_rows("Jujutsu", ".jj/repo/config.toml .jjconfig.toml"),
    *_rows("pre-commit", ".pre-commit-config.yaml .pre-commit-config.yml", "tell"),
    *_rows("husky", ".husky/ .huskyrc .huskyrc.js .huskyrc.json", "tell"),
    *_rows("lefthook", "lefthook.* .lefthook.* lefthook-local.* .lefthook-local.* .lefthook/", "tell"),
    *_rows("overcommit", ".overcommit.yml", "tell"),
    *_rows("Python", "pyvenv.cfg bin/python* bin/activate*", only_in="environment"),
    *_rows("Python", "site-packages/*.pth", only_in="environment"),
    *_rows("Python", "site-packages/sitecustomize* site-packages/usercustomize*", only_in="environment"),
    *_rows("Python", "sitecustomize.* sitecustomize/ usercustomize.* usercustomize/"),
    *_rows("Python", ".pythonrc .pythonrc.py .pystartup .pdbrc .pdbrc.py"),
    *_rows("pip", "pip.conf pip.ini .pydistutils.cfg", "tell"),
    *_rows("IPython", "ipython_config.* ipython_kernel_config.* .ipython/"),
    *_rows("Jupyter", "jupyter_config.* jupyter_*_config.* .jupyter/"),
    *_rows("direnv", ".envrc .envrc.local .direnv/", "tell"),
    *_rows("mise", "mise.toml .mise.toml mise.*.toml .mise.*.toml .mise/ mise/config.toml .tool-versions", "tell"),
    *_rows("autoenv", ".autoenv.zsh .autoenv", "tell"),
    *_rows("VS Code", ".vscode/ *.code-workspace .devcontainer/ .devcontainer.json"),
    *_rows("JetBrains IDEs", ".idea/ *.iws *.ipr .fleet/"),
    *_rows("Zed", ".zed/"),
    *_rows("Helix", ".helix/"),
    *_rows("Sublime Text", "*.sublime-project", "tell"),
    *_rows("Vim", ".exrc .nvimrc .nvim.lua .vimrc _vimrc .gvimrc .lvimrc .local.vimrc .vim/ .config/nvim/"),
    *_rows("Emacs", ".dir-locals.el .dir-locals-2.el .emacs .emacs.d/"),
    *_rows("Claude Code", ".claude/"),
    *_rows("Cursor", ".cursor/"),
    *_rows("coding agents", ".windsurf/ .gemini/ .codex/ .continue/ .roo/ .aider.conf.yml .opencode/"),
    *_rows("the shell", ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .inputrc"),
    *_rows("the shell", ".zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login"),
    *_rows("the shell", ".config/fish/ config.fish .xonshrc .config/nushell/"),
    *_rows("the desktop", ".xprofile .xinitrc .xsession .xsessionrc .pam_environment .config/autostart/"),
    *_rows("systemd", ".config/systemd/ .config/environment.d/"),
    *_rows("SSH", ".ssh/"),
    *_rows("tmux and screen", ".tmux.conf .screenrc"),
    *_rows("curl and wget", ".curlrc .wgetrc"),
    *_rows("the debugger", ".gdbinit .gdbearlyinit .lldbinit .radare2rc .rdbgrc .byebugrc"),
    *_rows("psql and sqlite3", ".psqlrc .sqliterc"),
    *_rows("R", ".Rprofile .Renviron"),
    *_rows("Julia", "startup.jl .juliarc.jl"),
    *_rows("Ruby", ".irbrc .pryrc"),
    *_rows("other interpreters", ".octaverc .ghci .ocamlinit .iex.exs .erlang .perldb"),
    *_rows("cargo", ".cargo/config .cargo/config.toml"),
    *_rows("cargo", "rust-toolchain rust-toolchain.toml", "tell"),
    *_rows("npm", ".npmrc"),
    *_rows("yarn and pnpm", ".yarnrc .yarnrc.yml .pnpmfile.cjs pnpmfile.js"),
    *_rows("bun", "bunfig.toml", "tell"),
    *_rows("Maven and Gradle", ".mvn/ init.gradle init.gradle.kts", "tell"),
    *_rows("Bazel", ".bazelrc", "tell"),
    *_rows("Ansible", "ansible.cfg .ansible.cfg", "tell"),
    *_rows("GitHub Actions", ".github/workflows/ .github/actions/", "tell"),
    *_rows("GitLab CI", ".gitlab-ci.yml", "tell"),
    *_rows("a CI service", ".forgejo/workflows/ .gitea/workflows/ .circleci/ .buildkite/ .travis.yml", "tell"),
    *_rows("a CI service", "azure-pipelines.yml bitbucket-pipelines.yml Jenkinsfile .drone.yml", "tell"),
)
"""A build with no rows plants everything: the escape suite proves its programs on that (`autorun_files.TABLE = ()`)."""


class Match(Struct, frozen=True):
    """`path`: what is put back or told as one thing; the path asked about, or a folder above it."""

    row: Row
    path: str


def match(path: str) -> Match | None:
    """The row for a path relative to the workspace, if a program would obey it. Looks at the name only."""
    found = next(patterns().find(path), None)
    if found is None:
        return None
    number, thing = found
    return Match(_for_installed(TABLE[number], path), thing)


def _for_installed(row: Row, path: str) -> Row:
    """A package that brings its own is obeyed only in that folder."""
    if row.response == "put back" and not row.only_in and is_installed(path):
        return Row(row.pattern, row.program, "tell")
    return row


def match_link(path: str) -> list[Match]:
    """What a program would obey through a link at this path, by the path it would use."""
    parts = path.split("/")
    ends = ("/".join(parts[-count:]) for count in (1, 2))
    below = _below(TABLE)
    return [Match(_for_installed(row, path), f"{path}/{rest}") for end in ends for row, rest in below.get(end, ())]


@functools.lru_cache(maxsize=2)
def _below(table: tuple[Row, ...]) -> dict[str, list[tuple[Row, str]]]:
    """By each folder that rows of the table name on the way: those rows, and what is left of their patterns."""
    found: dict[str, list[tuple[Row, str]]] = {}
    for row in table:
        parts = row.pattern.rstrip("/").split("/")
        for count in range(1, len(parts) if not row.only_in else 0):
            found.setdefault("/".join(parts[:count]), []).append((row, "/".join(parts[count:])))
    return found


_made = (TABLE[:0], NamePatterns(()))


def patterns() -> NamePatterns:
    """Of the whole table."""
    global _made  # noqa: PLW0603 - made when first asked, and again for another table
    if _made[0] is not TABLE:
        _made = (TABLE, NamePatterns([row.pattern.rstrip("/") for row in TABLE]))
    return _made[1]
