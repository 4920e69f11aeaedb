"""Skills of the user and of a workspace, and which of them are trusted.

A workspace's skills are trusted with it (`pinfold trust`). Each of the user's own is pinned by the hash of all its files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import (
    config_dir,
    explain_errors,
    hold_file_lock,
    private_dir,
    read_store,
    write_private,
    write_whole,
)
from pinfold.app.trust.project_files import SKILLS, ProjectFile, ProjectFiles, read_folder, read_project_files
from pinfold.app.trust.workspace_trust import is_trusted
from pinfold.text import printable_line
from pinfold.tools import BadTool
from pinfold.tools.skills.skill_file import SKILL, SkillFile, check_name, parse_skill

MOST = 200
"""Maximum skills in one folder."""


class Skill(Struct, frozen=True, kw_only=True):
    name: str
    """Name of the skill's folder."""
    place: Literal["yours", "project"]
    state: Literal["trusted", "untrusted", "changed", "broken"]
    files: Mapping[str, bytes] = {}
    """Contents by path in the folder; `state` is about exactly these bytes."""
    parsed: SkillFile | None = None
    problem: str = ""
    """Why the skill is broken, in one line."""
    digest: str = ""

    @property
    def described(self) -> SkillFile:
        assert self.parsed is not None
        return self.parsed


class _Pin(Struct, frozen=True, kw_only=True):
    digest: str


class _Pins(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    skills: dict[str, _Pin] = {}


def skills_folder() -> Path:
    return config_dir() / "skills"


def find_skills(workspace: Path | None, obeyed: Mapping[str, bytes] | None = None) -> tuple[Skill, ...]:
    """Return the user's skills, then the workspace's. `obeyed`: its trusted files, if known. Raises ConfigError."""
    own = _find_own()
    names = {one.name for one in own}
    here: list[Skill] = []
    if workspace is not None:
        for one in _find_in_workspace(workspace, obeyed):
            is_hidden = one.name in names
            problem = "one of yours has the same name and is used instead"
            here.append(msgspec.structs.replace(one, state="broken", problem=problem) if is_hidden else one)
    return (*own, *here)


def find_skill(name: str, workspace: Path | None) -> Skill:
    """Raises ConfigError."""
    found = find_skills(workspace)
    chosen = next((one for one in found if one.name == name), None)
    if chosen is None:
        names = ", ".join(one.name for one in found) or "none yet; `pinfold skill new NAME` makes one"
        raise ConfigError(f"no skill is called {printable_line(name)!r}; there are {names}")
    return chosen


def read_skill_folder(folder: Path) -> Skill:
    """Read a skill from any folder, as untrusted. Raises ConfigError if there is no folder."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; a skill is a folder with a file {SKILL}")
    found = read_folder(folder.resolve())
    return _describe(found.workspace.name, found, "yours", {})


def _find_own() -> list[Skill]:
    try:
        folders = sorted(one for one in skills_folder().iterdir() if one.is_dir() and not one.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{skills_folder()} cannot be read: {error.strerror}") from error
    pins = _read_pins().skills
    return [_describe(one.name, read_folder(one), "yours", pins) for one in folders[:MOST]]


def _find_in_workspace(workspace: Path, obeyed: Mapping[str, bytes] | None) -> Iterable[Skill]:
    if obeyed is None:
        found = read_project_files(workspace)
        trusted = is_trusted(found)
        files, odd = {one.name: one.data for one in found.files}, found.odd
    else:
        files, odd, trusted = obeyed, {}, True
    folders: dict[str, dict[str, bytes]] = {}
    for path, data in files.items():
        name, slash, inside = path.removeprefix(f"{SKILLS}/").partition("/")
        if path.startswith(f"{SKILLS}/") and slash:
            folders.setdefault(name, {})[inside] = data
    for name, inside in sorted(folders.items())[:MOST]:
        mine = {path: why for path, why in odd.items() if path == ".agents" or path.startswith(f"{SKILLS}/{name}/")}
        files_of = tuple(ProjectFile(name=path, data=data) for path, data in sorted(inside.items()))
        here = ProjectFiles(workspace=workspace / SKILLS / name, files=files_of, odd=mine)
        pins = {name: _Pin(digest=here.digest)} if trusted else {}
        yield _describe(name, here, "project", pins)


def _describe(name: str, found: ProjectFiles, place: Literal["yours", "project"], pins: Mapping[str, _Pin]) -> Skill:
    files = {one.name: one.data for one in found.files}
    pin = pins.get(name)
    state = "untrusted" if pin is None else "trusted" if pin.digest == found.digest else "changed"
    parsed, problem = None, next((f"{path}: {why}" for path, why in found.odd.items()), "")
    if not problem and SKILL not in files:
        problem = f"{name}: there is no file {SKILL}"
    if not problem:
        try:
            parsed = parse_skill(files[SKILL], name)
        except BadTool as error:
            problem = str(error)
    if problem:
        state = "broken"
    return Skill(
        name=name, place=place, state=state, files=files, parsed=parsed, problem=printable_line(problem),
        digest=found.digest,
    )  # fmt: skip


def trust_skill(skill: Skill) -> None:
    """Pin exactly these files of one of the user's skills. Raises ConfigError."""
    if skill.state == "broken":
        raise ConfigError(f"{skill.name} cannot be trusted: {skill.problem}")
    with hold_file_lock(_path()):
        _write_pins({**_read_pins().skills, skill.name: _Pin(digest=skill.digest)})


def install_skill(name: str, files: Mapping[str, bytes]) -> Path:
    """Write a skill to the user's folder and pin it. Raises ConfigError; never replaces a skill."""
    try:
        check_name(name, "skill")
    except BadTool as error:
        raise ConfigError(str(error)) from error
    folder = private_dir(skills_folder()) / name
    if folder.exists():
        raise ConfigError(f"you already have a skill {name!r}; remove it first: pinfold skill remove {name}")
    making = skills_folder() / f".{name}"
    shutil.rmtree(making, ignore_errors=True)  # left by an earlier try that was cut off
    try:
        for path, data in files.items():
            private_dir((making / path).parent)
            write_whole(making / path, data)
        with explain_errors(f"{folder} cannot be written"):
            making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    trust_skill(read_skill_folder(folder))
    return folder


def remove_skill(name: str) -> None:
    """Remove one of the user's skills. Raises ConfigError."""
    folder = skills_folder() / name
    if "/" in name or name.startswith(".") or not folder.is_dir():
        raise ConfigError(f"you have no skill {printable_line(name)!r}; `pinfold skill list` shows them")
    with explain_errors(f"{folder} cannot be removed"):
        shutil.rmtree(folder)
    with hold_file_lock(_path()):
        _write_pins({key: pin for key, pin in _read_pins().skills.items() if key != name})


def _path() -> Path:
    return config_dir() / "skills.json"


def _read_pins() -> _Pins:
    return read_store(_path(), _Pins, "remove it and trust your skills again")


def _write_pins(skills: Mapping[str, _Pin]) -> None:
    write_private(_path(), msgspec.json.encode(_Pins(skills=dict(skills))))
