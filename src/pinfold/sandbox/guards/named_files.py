"""Files that are guarded because of their names: secrets, and files that a program of the user obeys by itself.

No session may read a secret. `TABLE` lists what a session must not plant (docs/design/0012): a file that its program
would run without asking is put back. Where the program asks the user first, or runs only on the user's command, the
file stays and the user is informed.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, field

from pinfold.sandbox.kernel.safe_files import entries_of, link_target, read_text


class NamePatterns:
    """Patterns that match the last parts of a path, at any depth; `*` does not match a slash."""

    def __init__(self, patterns: Sequence[str], *, any_case: bool = False) -> None:
        lasts = {pattern.lower().rpartition("/")[2] for pattern in patterns}
        self.exact = frozenset(last for last in lasts if "*" not in last)
        self.endings = frozenset(last[last.rfind(".") :] for last in lasts if last.startswith("*"))
        starts = {last.partition("*")[0] for last in lasts if "*" in last} - {""}
        self.length = min(map(len, starts), default=0)
        self.starts = frozenset(start[: self.length] for start in starts)
        self._patterns = patterns
        self._flags = re.DOTALL | (re.IGNORECASE if any_case else 0)

    def may_end(self, name: str) -> bool:
        """Return False if no path that ends with this name can match a pattern. A fast check before `find`."""
        name = name.lower()
        return name in self.exact or name[name.rfind(".") :] in self.endings or name[: self.length] in self.starts

    def find(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield each leading part of the path that matches a pattern, after that pattern's number."""
        end = 0
        for name in path.split("/"):
            end += len(name) + 1
            if self.may_end(name) and (found := self._match_end(path[: end - 1])):
                yield (found.lastindex or 1) - 1, found[0]

    @functools.cached_property
    def _match_end(self) -> Callable[[str], re.Match[str] | None]:
        each = "|".join(f"({re.escape(pattern)})" for pattern in self._patterns).replace(r"\*", "[^/]*")
        return re.compile(rf"(?:.*?/)??(?:{each or '(?!)'})", self._flags).fullmatch


NAMES: Sequence[str] = (  # noqa: SIM905 - a line each would be sixty
    ".env .env.* *.pem *.key *.p8 *.p12 *.pfx *.pkcs12 *.jks *.keystore *.kdb *.kdbx *.ppk *.agekey *.ovpn "
    "id_rsa* id_ed25519* id_ecdsa* id_dsa* "
    ".netrc _netrc .git-credentials .npmrc .pypirc .gem_credentials .sentryclirc "
    ".pgpass pgpass.conf .my.cnf .mylogin.cnf .htpasswd .vault-token .smbcredentials .msmtprc .fetchmailrc "
    ".boto .s3cfg .dockercfg .databrickscfg .rclone.conf rclone.conf sftp-config.json kubeconfig kaggle.json "
    "*.tfstate *.tfstate*.backup credentials.json application_default_credentials.json client_secret*.json "
    "service-account*.json service_account*.json secrets.y*ml "
    ".aws/credentials .kube/config .docker/config.json .config/gcloud .config/op .azure/accesstokens.json "
    ".azure/msal_token_cache.json .azure/msal_token_cache.bin gh/hosts.yml .gem/credentials .cargo/credentials "
    ".cargo/credentials.toml .terraform.d/credentials.tfrc.json .snowsql/config .huggingface/token"
).split()
"""Names of secrets. Case does not matter. In a folder with such a name, everything is secret."""
_SHOWN = re.compile(r"(?is)(?:.*/)?\.env\.(?:example|sample|template|dist)").fullmatch
_BY_ENDING = tuple(name for name in NAMES if name.startswith("*"))
_INSTALLED = re.compile(r"(?:^|/)(?:site-packages|dist-packages|node_modules)(?:/|\Z)")
PATTERNS = NamePatterns(NAMES, any_case=True)


def is_masked(path: str) -> bool:
    """Return True if a path, relative to the workspace, names a secret or lies in a folder that does."""
    for number, thing in PATTERNS.find(path):
        # Packages contain public certificates: without `certifi/cacert.pem` they cannot reach any server.
        is_public = NAMES[number] in _BY_ENDING and is_installed(thing)
        if not is_public and not _SHOWN(thing):
            return True
    return False


def is_installed(path: str) -> bool:
    """Return True if the path is in a folder of installed packages."""
    return _INSTALLED.search(path) is not None


MOST = 200
"""Most characters shown of one name."""


def format_name(name: str) -> str:
    """Return the name shortened to one line, with control characters escaped."""
    cut = name if len(name) <= MOST else f"{name[:MOST]}..."
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in cut)


Response: TypeAlias = Literal["put back", "tell"]


class AutorunRule(Struct, frozen=True):
    """`pattern` matches the last parts of a path, at any depth; `*` matches no slash. "/" at its end means a folder.

    What it matches is handled as a whole, with everything below it.
    """

    pattern: str
    program: str
    """The program that obeys the file."""
    response: Response = "put back"
    only_in: Literal["", "environment", "git"] = ""
    """`environment`: applies only below a folder with `pyvenv.cfg`; if the session made that, only reports changes.
    `git`: a session may make git folders without unsafe parts; they are guarded from then on (see `gitdir.py`)."""


def _rows(
    program: str, patterns: str, response: Response = "put back", only_in: Literal["", "environment", "git"] = ""
) -> tuple[AutorunRule, ...]:
    return tuple(AutorunRule(pattern, program, response, only_in) for pattern in patterns.split())


GIT_FOLDER = AutorunRule(".git/", "git", only_in="git")
"""The rule for every kind of git folder: `.git`, a `.git` file, and any folder with HEAD, objects and refs."""

TABLE: tuple[AutorunRule, ...] = (
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
"""With no rows every file can be planted: the escape suite proves its programs against such a build (`TABLE = ()`)."""


class Match(Struct, frozen=True):
    """`path`: what is put back or reported as a whole: the given path or a folder above it."""

    row: AutorunRule
    path: str


def match(path: str) -> Match | None:
    """Return the rule for a path relative to the workspace, if a program would obey it. Checks only the name."""
    found = next(_compile_patterns(TABLE).find(path), None)
    if found is None:
        return None
    number, thing = found
    return Match(_for_installed(TABLE[number], path), thing)


def _for_installed(row: AutorunRule, path: str) -> AutorunRule:
    """Weaken the rule in installed packages, where such a file is obeyed only in the package's own folder."""
    if row.response == "put back" and not row.only_in and is_installed(path):
        return AutorunRule(row.pattern, row.program, "tell")
    return row


def match_link(path: str) -> list[Match]:
    """Return what a program would obey through a link at this path, by the path that it would use."""
    parts = path.split("/")
    ends = ("/".join(parts[-count:]) for count in (1, 2))
    below = _below(TABLE)
    return [Match(_for_installed(row, path), f"{path}/{rest}") for end in ends for row, rest in below.get(end, ())]


@functools.lru_cache(maxsize=2)
def _below(table: tuple[AutorunRule, ...]) -> dict[str, list[tuple[AutorunRule, str]]]:
    """Return the rules by each folder that their patterns begin with, and the rest of the pattern."""
    found: dict[str, list[tuple[AutorunRule, str]]] = {}
    for row in table:
        parts = row.pattern.rstrip("/").split("/")
        for count in range(1, len(parts) if not row.only_in else 0):
            found.setdefault("/".join(parts[:count]), []).append((row, "/".join(parts[count:])))
    return found


@functools.lru_cache(maxsize=2)
def _compile_patterns(table: tuple[AutorunRule, ...]) -> NamePatterns:
    return NamePatterns([row.pattern.rstrip("/") for row in table])


MODULE = AutorunRule("site-packages/", "Python")
"""A module that a path file (`*.pth`) imports, or its bytecode: it runs at every start of Python."""
PROGRAM = AutorunRule("bin/", "the shell", "tell")
STAND_IN = AutorunRule("bin/", "the shell")
"""A new program with the name of a system program: it runs instead of that once the environment is activated."""
_SYSTEM = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
_ON_THE_WAY = r"bin|lib(64)?(/python[^/]*(/site-packages)?)?"
"""Matches folders of an environment where a link would make Python use files other than the watched ones."""
_IMPORT = r"\bimport\s+([\w., \t]+)|\bfrom\s+([\w.]+)|__import__\(\s*['\"]([\w.]+)"
_PATH_FILE_BYTES = 1 << 16


class VirtualEnvironment(Struct, frozen=True):
    """A Python environment in the workspace. Paths are relative to the workspace."""

    home: str
    imported: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """By folder: the modules that path files import and Python may find in that folder."""
    links: dict[str, str] = field(default_factory=dict[str, str])
    """The user's own links on the way to the modules, with their targets."""
    programs: frozenset[str] = frozenset()
    """The names in `bin`."""

    def match(self, path: str, target: str | None = None) -> Match | None:
        """Return the rule for a path, if one applies. `target`: the link's target if the path is a link."""
        for folder, names in self.imported.items():
            if path.startswith(f"{folder}/"):
                first, _, below = path[len(folder) + 1 :].partition("/")
                if first == "__pycache__":
                    first = f"{first}/{below.partition('/')[0]}"
                if first.rpartition("/")[2].partition(".")[0] in names:
                    return Match(MODULE, f"{folder}/{first}")
        start = f"{self.home}/" if self.home else ""
        within = path[len(start) :] if path.startswith(start) else ""
        if target is not None and re.fullmatch(_ON_THE_WAY, within) and self.links.get(path) != target:
            return Match(MODULE, path)
        program = re.fullmatch(r"bin/((?!python|activate)[^/]+)", within)
        if program is None:
            return None
        is_stand_in = program[1] not in self.programs and _is_of_the_system(program[1])
        return Match(STAND_IN if is_stand_in else PROGRAM, path)

    def matches(self, top: str) -> Iterator[Match]:
        """Yield the match of every existing path that has one."""
        start = Path(top, self.home)
        folders = [start, start / "bin", start / "lib", *_glob(start, "lib/python*")]
        folders += [Path(top, folder, below) for folder in self.imported for below in ("", "__pycache__")]
        for folder in folders:
            for entry in entries_of(str(folder)):
                found = self.match(entry.path[len(top) + 1 :], link_target(entry.path))
                if found is not None:
                    yield found


def read_environment(top: str, home: str) -> VirtualEnvironment:
    start = Path(top, home)
    imported: dict[str, frozenset[str]] = {}
    links: dict[str, str] = {}
    ways = ("bin", "lib*", "lib*/python*", "lib*/python*/site-packages")
    for path in (str(path) for way in ways for path in _glob(start, way)):
        if target := link_target(path):
            links[path[len(top) + 1 :]] = target
    for site in _glob(start, "lib/python*/site-packages"):
        folders, names = [str(site)], set[str]()
        for entry in entries_of(str(site)):
            if entry.name.endswith(".pth"):
                lines = _lines(entry.path)
                names |= {name for line in lines if _runs(line) for name in _modules(line)}
                folders += [os.path.normpath(os.path.join(site, line)) for line in lines if not _runs(line)]
        within = {folder[len(top) + 1 :] for folder in folders if folder.startswith(f"{top}/")}
        if names:
            imported |= {folder: imported.get(folder, frozenset()) | names for folder in within}
    programs = frozenset(entry.name for entry in entries_of(f"{start}/bin"))
    return VirtualEnvironment(home, imported, links, programs)


def _glob(start: Path, pattern: str) -> list[Path]:
    """As `Path.glob`, which cannot be used because one link with an invalid target makes it find nothing."""
    return [start / name for name in glob.glob(pattern, root_dir=start)]


def _is_of_the_system(name: str) -> bool:
    """Return True for a system program, except those written in Python, which environments replace on purpose."""
    for folder in _SYSTEM:
        try:
            with Path(folder, name).open("rb") as file:
                first = file.readline(200)
        except OSError:
            continue
        return not (first.startswith(b"#!") and b"python" in first)
    return False


def _runs(line: str) -> bool:
    """Return True if Python executes this line of a path file (the rule of the `site` module)."""
    return line.startswith(("import ", "import\t"))


def _modules(line: str) -> Iterator[str]:
    for names in (name for found in re.findall(_IMPORT, line) for name in found):
        for name in re.split(r"[,;]", names):
            first = name.strip().partition(" ")[0].partition(".")[0]
            if first and first not in sys.stdlib_module_names:
                yield first


def _lines(path: str) -> list[str]:
    text = read_text(path, _PATH_FILE_BYTES)
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
