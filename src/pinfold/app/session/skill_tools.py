"""The skills of a session: listed in the prompt, read by the model, made from functions. Tools of `servers.skills`."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

from anyio import to_thread
from msgspec.structs import replace

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir
from pinfold.engine import NotShown
from pinfold.events import ActionFinished, ActionId, ActionProposed, ActionStarted, CallTool, Json, RunCell
from pinfold.log import Log
from pinfold.sandbox import FileRefused, Provider, Session, Spec
from pinfold.text import cap_text, first_line, join_names
from pinfold.tools import AnyTool, BadCall, BadTool, Registry, Result, tool
from pinfold.tools.ports import Inside

if TYPE_CHECKING:
    from pinfold.app.session.promotion import Promotion, Request, SkillSandbox
    from pinfold.app.trust.skills import Skill
    from pinfold.tools.skills.recorded_calls import Cell

SERVER = "skills"
_SKILL = "SKILL.md"

FILE_CHARS = 60_000
"""Longest file of a skill that is read, in characters."""
_NATIVE = 40
"""Most functions offered to the model as tools of their own; code finds all of them."""


class SessionSkills:
    """The trusted skills of a session. Its code finds their files in `spec.skills`."""

    def __init__(
        self,
        provider: Provider,
        spec: Spec,
        log: Log,
        *,
        inside: Inside,
        ensure_session: Callable[[], Awaitable[Session]],
    ) -> None:
        self._provider = provider
        self._log = log
        self._inside = inside
        self._ensure_session = ensure_session
        self._workspace, self._folder = spec.workspace, spec.skills
        self._skills: dict[str, Skill] = {}
        self._written: set[str] = set()
        self._alone: SkillSandbox | None = None
        self._shown: Promotion | None = None
        """The promotion that the user was shown last."""
        self._functions: list[str] = []
        """Tools that were promoted, in this session and before."""
        self.registry: Registry | None = None
        """The session's registry, once it exists."""

    async def close(self) -> None:
        if self._alone:
            await self._alone.aclose()

    @property
    def native(self) -> tuple[str, ...]:
        """The functions offered to the model as tools of their own, including those promoted in this session."""
        return tuple(self._available[-_NATIVE:])

    @property
    def _available(self) -> list[str]:
        """The functions that are not switched off."""
        return [name for name in self._functions if self.registry is None or self.registry.get(name)]

    def load(self, obeyed: Mapping[str, bytes], taken: Collection[str]) -> tuple[list[AnyTool], tuple[str, ...]]:
        """Load the skills. Returns the functions among them as tools, and a line for each skill that cannot be used.

        `taken`: names of other tools. Raises ConfigError.
        """
        if self._folder is not None and self._folder.is_dir():
            shutil.rmtree(self._folder, ignore_errors=True)  # files of an earlier process may no longer be trusted
        if not (config_dir() / "skills").is_dir() and not any(name.startswith(".agents/skills/") for name in obeyed):
            return [], ()
        from pinfold.app.trust.skills import find_skills

        faults: list[str] = []
        made: list[AnyTool] = []
        for one in find_skills(self._workspace, obeyed):
            if one.state != "trusted":
                why = one.problem or f"it is {one.state}; see and allow: pinfold skill trust {one.name}"
                faults.append(f"the skill {one.name} is ignored: {why}")
                continue
            try:
                made += self._make_tool(one, {*taken, *self._functions})
                self._skills[one.name] = one
            except BadTool as error:
                faults.append(f"the skill {one.name} is ignored: {error}")
        return made, tuple(faults)

    def _make_tool(self, skill: Skill, taken: Collection[str]) -> list[AnyTool]:
        """Return the tool of a skill that is a function; none otherwise. Raises BadTool."""
        # Only for the user's own skills: a project can add instructions, never tools.
        if skill.place == "project":
            return []
        from pinfold.app.session.promotion import SkillSandbox, skill_tool

        self._alone = self._alone or SkillSandbox(self._provider)
        made = skill_tool(skill, self._alone, self._inside)
        if made is None:
            return []
        if made.name in taken:
            raise BadTool(f"there is already a tool called {made.name!r}")
        self._functions.append(made.name)
        return [made]

    def prompt(self, place: str, *, can_call: bool, small: bool) -> str:
        """Return the part of the system prompt on skills. `can_call`: code can call tools in this sandbox."""
        if not self._skills:
            return ""
        from pinfold.app.session.promotion import CALL, TOOL
        from pinfold.tools.skills.skill_file import skills_prompt

        found = [one for one in self._skills.values() if one.place == "project" or TOOL not in one.described.metadata]
        native = () if small else self.native
        functions = [one.described for one in self._skills.values() if one not in found]
        calls = [
            (one.metadata.get(CALL, one.metadata[TOOL]), one.description)
            for one in functions
            if one.metadata[TOOL] in self._available and one.metadata[TOOL] not in native
        ]
        skills = [(one.name, one.described.description) for one in found]
        return skills_prompt(skills, calls, place, native=native, can_call=can_call)

    async def write_files(self) -> None:
        """Write the files of the skills to where code finds them."""
        new = [one for one in self._skills.values() if one.digest not in self._written]
        if new and self._folder is not None:
            await to_thread.run_sync(_write_files, self._folder, new)
            self._written.update(one.digest for one in new)

    def tools(self) -> list[AnyTool]:
        async def read_skill(name: str, file: str = "") -> str:
            """Read a skill: its instructions, or one of its files.

            Args:
                name: Of the skill; empty lists all.
                file: Its path in the skill, such as references/forms.md.
            """
            await self.write_files()
            return self._read(name, file)

        async def promote_skill(
            file_path: str,
            function_name: str,
            tool_name: str = "",
            effects: str = "none",
            examples: list[dict[str, Json]] | None = None,
        ) -> Result:
            """Keep a function that works as a tool, for this and all later sessions. The user is asked.

            Args:
                file_path: The file of the workspace that defines it, with type hints and a docstring.
                function_name: A function at its top level, which needs nothing but that file and installed packages.
                tool_name: Of the tool; that of the function unless given.
                effects: none, or files if it reads or writes files of the workspace.
                examples: Arguments of calls that must work, if none was made in this session.
            """
            given = {"file_path": file_path, "function_name": function_name, "tool_name": tool_name}
            wanted = _read_request({**given, "effects": effects, "examples": examples})
            shown, self._shown = self._shown, None
            return await to_thread.run_sync(self._keep, shown if shown and shown.asked == wanted else None)

        return [
            tool(effect="pure", reach="nothing", server=SERVER)(read_skill),
            tool(effect="once", reach="outside", server=SERVER)(promote_skill),
        ]

    def _read(self, name: str, file: str) -> str:
        """Raises BadCall."""
        if not name:
            lines = [f"{one.name}: {one.described.description}" for one in self._skills.values()]
            return "\n".join(lines) or "(no skills)"
        skill = self._skills.get(name) or self._skills.get(name.replace("_", "-"))
        if skill is None:
            raise BadCall(f"no skill is called {name[:64]!r}; there are {join_names(list(self._skills), 12) or 'none'}")
        path = str(PurePosixPath(file or _SKILL))
        if path not in skill.files:
            raise BadCall(f"{skill.name} has no file {file[:200]!r}; it has {join_names(list(skill.files), 20)}")
        if path != _SKILL:
            return cap_text(skill.files[path].decode("utf-8", "replace"), FILE_CHARS)
        others = [one for one in skill.files if one != _SKILL]
        more = f"\n\n[Its other files: {join_names(others, 20)}]" if others else ""
        allowed = " ".join(skill.described.allowed_tools)
        narrows = f"\n\n[It uses only: {allowed}]" if allowed else ""
        return cap_text(skill.described.body, FILE_CHARS) + narrows + more

    async def preview(self, args: Mapping[str, Json]) -> str:
        """Return what the user sees before agreeing to a promotion. Raises NotShown if it cannot be promoted."""
        from pinfold.app.session.promotion import prepare_promotion

        wanted = _read_request(args)
        known, self._shown = self._shown, None
        try:
            request = await self._add_source(wanted)
            if known is None or known.request != request:
                taken = self.registry.names if self.registry else ()
                known = await prepare_promotion(request, taken, self._provider)
        except (BadTool, BadCall, ConfigError) as error:
            raise NotShown(f"{wanted.function} cannot be promoted: {error}") from error
        self._shown = replace(known, asked=wanted)
        return known.shows

    async def _add_source(self, wanted: Request) -> Request:
        """Add the file as it is now, and the session's cells. Raises BadCall."""
        try:
            source = (await (await self._ensure_session()).get(wanted.file)).decode("utf-8")
        except FileRefused as error:
            raise BadCall(str(error)) from error
        except UnicodeDecodeError as error:
            raise BadCall(f"{wanted.file} is not UTF-8 text") from error
        cells = await to_thread.run_sync(lambda: list(_list_cells(self._log)))
        return replace(wanted, source=source, cells=cells)

    def _keep(self, promotion: Promotion | None) -> Result:
        """Write exactly what the user was shown. Raises BadCall."""
        from pinfold.app.trust.skills import install_skill, read_skill_folder

        if promotion is None:
            raise BadCall("the user has not seen this skill yet; call it again")
        try:
            folder = install_skill(promotion.skill, promotion.files)
            skill = replace(read_skill_folder(folder), state="trusted")
            if self.registry:
                for made in self._make_tool(skill, self.registry.names):
                    self.registry.add(made)
        except (ConfigError, BadTool) as error:
            raise BadCall(str(error)) from error
        self._skills[skill.name] = skill
        name = promotion.tool
        words = f"{name} is a tool now, here and in later sessions: call {name}, or `from servers.skills import {name}`"
        return Result(text=words, value=name, notices=(f"Kept as your skill {skill.name}: {folder}",))


def _write_files(folder: Path, skills: list[Skill]) -> None:
    for skill in skills:
        for name, data in skill.files.items():
            path = folder / skill.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            # The session of a root user runs under another uid.
            path.chmod(0o644)
            for above in path.relative_to(folder).parents:
                (folder / above).chmod(0o755)


def _read_request(args: Mapping[str, Json]) -> Request:
    """Build the request from the arguments of `promote_skill`, without the source."""
    from pinfold.app.session.promotion import Request

    name, examples = str(args.get("function_name", "")), args.get("examples")
    return Request(
        file=str(args.get("file_path", "")),
        function=name,
        tool=str(args.get("tool_name") or name),
        effects=str(args.get("effects") or "none"),
        examples=cast("list[Json]", examples) if isinstance(examples, list) else [],
    )


def _list_cells(log: Log) -> Iterator[Cell]:
    """Yield number, code and value of each successful cell; a file that a tool wrote counts as a cell naming it."""
    codes: dict[ActionId, str] = {}
    numbers: dict[ActionId, int] = {}
    for entry in log.read():
        match entry.event:
            case ActionProposed(id=id_, action=RunCell(code=code)):
                codes[id_] = code
            case ActionProposed(id=id_, action=CallTool() as call) if "path" in call.given:
                codes[id_] = f"# {first_line(str(call.given['path']))}"
            case ActionStarted(id=id_, cell=int(cell)):
                numbers[id_] = cell
            case ActionFinished(id=id_, outcome="ok", value=value) if id_ in codes:
                yield numbers.get(id_, 0), codes[id_], value
            case _:
                pass
