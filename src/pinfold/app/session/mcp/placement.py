"""Where the program of an MCP server may run, and what of this machine it needs there.

On this machine it runs with the user's rights, so the agent must not be able to choose what it does: no part of it may
lie in a workspace, which the agent writes to. In a sandbox of its own it sees the workspace, its own installation, and
nothing else of the user's.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import is_too_wide, refuse_closed_folders
from pinfold.app.trust.mcp_reach import is_sandboxed
from pinfold.sandbox import Mount, not_mountable
from pinfold.tools import BadCall
from pinfold.tools.mcp.spec import ServerSpec

_NPM, _PYPI = ("registry.npmjs.org",), ("pypi.org", "files.pythonhosted.org")
_REGISTRIES = {"npx": _NPM, "bunx": _NPM, "uvx": _PYPI, "pipx": _PYPI}
_PASSED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ", "USER")
"""The only variables that a server on this machine inherits, because the environment holds keys."""
_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr")
"""Folders that every sandbox has."""
_CODE = (".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".jar", ".rb", ".pl", ".sh")
_RUNNERS = re.compile(
    r"(?:python[0-9.]*|node|deno|bun|bunx|npx|npm|pnpm|yarn|uv|uvx|pipx|ruby|perl|php|java|[bd]?a?sh|zsh)"
)
"""Programs that run what their first argument names, options aside."""
_RUNS = (
    *("--directory", "--project", "--from", "--with-editable", "--with", "--prefix", "--package", "-p"),
    *("--require", "-r", "--import", "--loader", "--env-file", "--config", "-C", "--cwd", "-c", "-e"),
)
"""Options of these programs whose value decides what they run."""
_STEERS = (
    *("PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "NODE_PATH", "NODE_OPTIONS", "BASH_ENV", "ENV"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH"),
)
_MARKS = ("package.json", "pyproject.toml", "setup.py", "pyvenv.cfg")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def registry_hint(spec: ServerSpec) -> str:
    """Say how to let a program download its server, if it may reach no host; empty if it need not download."""
    program = PurePath(spec.command).name
    if spec.hosts or not is_sandboxed(spec) or program not in _REGISTRIES:
        return ""
    hosts = " ".join(f"--host {host}" for host in _REGISTRIES[program])
    return f"{program} downloads what it runs, and {spec.name} may reach no host; to allow its registry: {hosts}"


def describe_place(spec: ServerSpec) -> str:
    """Return where the server runs, in words for the user."""
    if spec.transport != "stdio":
        return spec.url
    return f"a sandbox of its own (reach {spec.reach})" if is_sandboxed(spec) else "this machine"


class Launch(Struct, frozen=True, kw_only=True):
    """How to start a server's program."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mounts: tuple[Mount, ...] = ()


def launch_on_host(spec: ServerSpec, workspace: Path) -> Launch:
    """Raises BadCall."""
    env = {name: os.environ[name] for name in _PASSED if name in os.environ}
    env["PATH"] = _search_path_outside(workspace, env.get("PATH", os.defpath))
    env |= spec.env
    # Never in the workspace: `python -m` and `npx` run what they find in the folder they start in.
    cwd = Path.home() / Path(spec.cwd).expanduser()
    program = _find_program(spec, cwd, env["PATH"])
    if inside := _from_workspace(spec, program, cwd, workspace):
        raise BadCall(
            f"{spec.name} would run {inside} on this machine, and the agent can change it; "
            f'add `"reach": "workspace"` to it in {spec.origin}, and it runs in a sandbox'
        )
    return Launch(argv=(str(program), *spec.args), env=env, cwd=str(cwd))


def launch_in_sandbox(spec: ServerSpec, workspace: Path) -> Launch:
    """Raises BadCall."""
    # With network access never in the workspace, for the same reason as on this machine.
    cwd = (Path("/") if spec.hosts else workspace) / Path(spec.cwd).expanduser()
    if not cwd.is_dir():
        raise BadCall(f"{spec.name}: the folder {cwd} does not exist; change `cwd` in {spec.origin}")
    path = os.environ.get("PATH", os.defpath)
    program = _find_program(spec, cwd, _search_path_outside(workspace, path) if spec.hosts else path)
    if spec.hosts and (inside := _from_workspace(spec, program, cwd, workspace)):
        # It could send out whatever the session knows, without a call that is asked about.
        raise BadCall(
            f"{spec.name} would run {inside} with access to {', '.join(spec.hosts)}, and the agent can change it; "
            "install it outside the workspace, or remove `hosts` from its entry"
        )
    installed, named = [*_installation(program)], [*_find_named_paths(spec, cwd)]
    if spec.is_confined:  # the project chose the arguments, so they may open no folder but its own
        named = [path for path in named if path.resolve().is_relative_to(workspace.resolve())]
        if "/" in spec.command or program.is_relative_to(workspace):
            installed = [program.resolve(), *(one for one in installed if _is_harmless(one, workspace))]
    needed = [*installed, *named]
    env = dict(spec.env)
    paths = [str(program.parent), *(str(one.parent) for one in _shebang(program)), env.get("PATH", ""), _INSIDE_PATH]
    env["PATH"] = ":".join(filter(None, dict.fromkeys(paths)))
    if Path(_CERTIFICATES).is_file():
        # The program's own certificates are masked in the sandbox, like everything that looks like a key.
        for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
            env.setdefault(variable, _CERTIFICATES)
    mounts = _mounts(spec, needed, Mount(path=workspace, writable=spec.reach == "workspace"))
    return Launch(argv=(str(program), *spec.args), env=env, cwd=str(cwd), mounts=mounts)


_INSIDE_PATH = "/usr/local/bin:/usr/bin:/bin"


def _find_program(spec: ServerSpec, cwd: Path, path: str) -> Path:
    command = os.path.expanduser(spec.command)  # noqa: PTH111 - it may be a plain name
    found = shutil.which(str(cwd / command) if "/" in command else command, path=path)
    if found is None:
        raise BadCall(
            f"{spec.name} cannot be started: there is no program {spec.command!r}; "
            f"install it, or change `command` in {spec.origin}"
        )
    return Path(found).absolute()


# On this machine: which parts of a program the agent could have written.


def _search_path_outside(workspace: Path, path: str) -> str:
    """Remove the workspace's folders from a search path: a project's own environment may be on it."""
    top = workspace.resolve()
    kept = [one for one in path.split(":") if one.startswith("/") and not Path(one).resolve().is_relative_to(top)]
    return ":".join(kept)


def _from_workspace(spec: ServerSpec, program: Path, cwd: Path, workspace: Path) -> str:
    """Return what would be run from the workspace; empty if nothing."""
    top = workspace.resolve()

    def inside(text: str) -> bool:
        try:
            return bool(text) and (cwd / Path(text).expanduser()).resolve().is_relative_to(top)
        except (OSError, RuntimeError, ValueError):
            return True  # where it leads is unknown

    if program.is_relative_to(workspace) or inside(str(program)):
        return str(program)
    if cwd.resolve().is_relative_to(top):
        return f"what it finds in {cwd}"
    for name in _STEERS:
        for part in re.split(r"[:\s=]", spec.env.get(name, "")):
            if part and inside(part):
                return f"what {name} names in {part}"
    runs = _RUNNERS.fullmatch(program.name) is not None
    previous, is_first = "", True
    for arg in spec.args:
        word = arg.partition("=")[2] if arg.startswith("-") else arg
        option = arg.partition("=")[0] if arg.startswith("-") else previous
        decides = runs and (option in _RUNS or (is_first and not arg.startswith("-")))
        if word and inside(word) and (decides or (cwd / Path(word).expanduser()).is_file()):
            return word
        is_first = is_first and arg.startswith("-")
        previous = arg
    return ""


# In a sandbox: what a program needs.


def _installation(program: Path) -> Iterator[Path]:
    """Yield the folders of the program itself, and of the interpreter in its first line."""
    for one in dict.fromkeys([program, program.resolve(), *_shebang(program), *_shebang(program.resolve())]):
        yield _home_of(one)
        if (config := one.parent.parent / "pyvenv.cfg").is_file():
            yield from _bases(config)


def _is_harmless(folder: Path, workspace: Path) -> bool:
    """Accept only the workspace and Pythons: links, first lines and `pyvenv.cfg` of a project can lead anywhere."""
    real = folder.resolve()
    if real.is_relative_to(workspace.resolve()):
        return True
    packages = "site-packages" if (real / "pyvenv.cfg").is_file() else "os.py"
    return any((real / "lib").glob(f"python3*/{packages}"))


def _home_of(program: Path) -> Path:
    """Return the folder of what is installed together with a program, as far as its path shows."""
    parts = program.parts
    if "node_modules" in parts:
        return Path(*parts[: parts.index("node_modules") + 1])
    if program.parent.name in ("bin", "Scripts") and not is_too_wide(program.parent.parent.resolve()):
        home = program.parent.parent
        # ~/.local/bin holds programs of all kinds; what they need lies elsewhere, where their links lead.
        return program if home.name == ".local" else home
    return program


def _bases(config: Path) -> Iterator[Path]:
    """Yield the Python that a virtual environment was made from."""
    try:
        lines = config.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "home" and value.strip():
            home = Path(value.strip())
            yield home.resolve().parent if home.name == "bin" else home.resolve()


def _shebang(program: Path) -> list[Path]:
    try:
        with program.open("rb") as file:
            head = file.read(256)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    words = head[2:].split(b"\n")[0].decode("utf-8", "replace").split()
    named = words[1] if len(words) > 1 and words[0].endswith("/env") else words[0] if words else ""
    found = shutil.which(named) if named else None
    path = Path(found).absolute() if found else None
    return list(dict.fromkeys([path, path.resolve()])) if path else []


def _find_named_paths(spec: ServerSpec, cwd: Path) -> Iterator[Path]:
    """Yield the existing paths that its arguments name."""
    for arg in spec.args:
        for word in {arg, arg.partition("=")[2]}:
            path = cwd / Path(word).expanduser() if "/" in word else None
            if path is not None and "\0" not in word and path.exists():
                yield _project_of(path.absolute())


def _project_of(path: Path) -> Path:
    """Return the project folder around a program; any other path as it is."""
    if not (path.is_file() and path.suffix in _CODE):
        return path
    if "node_modules" in path.parts:
        return _home_of(path)
    for folder in path.parents:
        if _is_off_limits(folder):
            break
        if any((folder / mark).is_file() for mark in _MARKS):
            return folder
    return path if _is_off_limits(path.parent) else path.parent


def _is_off_limits(folder: Path) -> bool:
    try:
        refuse_closed_folders(folder.resolve())
    except ConfigError:
        return True
    return is_too_wide(folder.resolve())


def _mounts(spec: ServerSpec, needed: Iterable[Path], workspace: Mount) -> tuple[Mount, ...]:
    """Return read-only mounts, none inside another, and the workspace's as given. Raises BadCall."""
    if why := _why_not(workspace):
        raise BadCall(f"{spec.name} cannot run in a sandbox here: {why}")
    kept: list[Mount] = [workspace]
    paths = {one for path in needed for one in (path, path.resolve())}
    for path in sorted(paths, key=lambda path: (len(path.parts), path)):
        if any(path.is_relative_to(one) for one in (*_SYSTEM, *(mount.path for mount in kept))):
            continue
        mount = Mount(path=path)
        if why := _why_not(mount):
            raise BadCall(f"{spec.name} cannot run in a sandbox: {why}")
        if workspace.path.is_relative_to(path):
            if workspace.writable:
                raise BadCall(
                    f"{spec.name} cannot run in a sandbox: {path} contains the workspace; "
                    f"name a smaller folder in {spec.origin}"
                )
            kept.remove(workspace)
        kept.append(mount)
    return tuple(kept)


def _why_not(mount: Mount) -> str:
    if is_too_wide(mount.path):
        return f"{mount.path} holds far more than one program"
    try:
        refuse_closed_folders(mount.path)
    except ConfigError as error:
        return str(error)
    why = not_mountable(mount)
    return f"{mount.path}: {why}" if why else ""
