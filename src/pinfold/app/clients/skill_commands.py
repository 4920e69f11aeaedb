"""Skill commands for users: create a skill, promote a function, run a skill's tests in the configured sandbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path, PurePath

from pinfold.app.errors import ConfigError
from pinfold.app.paths import current_folder, explain_errors, read_limited, write_whole
from pinfold.app.session.build_session import resolve_sandbox
from pinfold.app.session.options import new_session_options
from pinfold.app.session.promotion import TOOL, Promotion, Request, prepare_promotion, run_skill_tests
from pinfold.app.trust.project_files import SKILLS
from pinfold.app.trust.skills import Skill, find_skills, install_skill
from pinfold.events import Json, PinfoldError, new_session_id, parse_json
from pinfold.sandbox import Provider
from pinfold.tools import BUILT_IN
from pinfold.tools.skills.skill_file import SKILL, SkillFile, check_name, format_skill

_SOURCE_BYTES = 1 << 20
_BODY = """\
# {name}

Say here, step by step, what to do. The model reads this text when a task fits the description above.

- Put longer texts into `references/`, and programs into `scripts/`: the model reads and runs them in the sandbox, at
  `/mnt/skills/{name}`.
"""


def create_skill(name: str, description: str, *, here: bool) -> Path:
    """Write a skeleton to the user's folder, or to the current one if `here`. Raises ConfigError, BadTool."""
    check_name(name, "skill")
    text = format_skill(SkillFile(name=name, description=description, body=_BODY.format(name=name))).encode()
    if not here:
        return install_skill(name, {SKILL: text})
    folder = current_folder() / SKILLS / name
    if folder.exists():
        raise ConfigError(f"{folder} exists already")
    with explain_errors(f"{folder} cannot be made"):
        folder.mkdir(parents=True)
    write_whole(folder / SKILL, text, mode=0o644)
    return folder


async def promote_file(path: Path, function: str, tool: str, effects: str, examples: Sequence[str]) -> Promotion:
    """Check and try a function as a skill, without keeping it yet. Raises BadTool, ConfigError."""
    data = read_limited(path, _SOURCE_BYTES, "is too large to be the source of one function")
    try:
        source = data.decode("utf-8")
        given: list[Json] = [parse_json(one) for one in examples]
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error
    except PinfoldError as error:
        raise ConfigError(f'--example is JSON such as {{"argument": 1}}: {error}') from error
    request = Request(
        source=source,
        file=PurePath(path).name,
        function=function,
        tool=tool or function,
        effects=effects,
        examples=given,
    )
    own = [one.parsed.metadata.get(TOOL, "") for one in find_skills(None) if one.parsed]
    async with _open_provider() as provider:
        return await prepare_promotion(request, {*BUILT_IN, *own}, provider)


async def check_skill(skill: Skill) -> list[tuple[str, str]]:
    """Run the skill's tests. Return each with its failure, empty if it passed. Raises BadTool, BadCall."""
    async with _open_provider() as provider:
        return await run_skill_tests(skill, provider)


@asynccontextmanager
async def _open_provider() -> AsyncGenerator[Provider]:
    options = new_session_options(new_session_id(), current_folder(), {})
    async with AsyncExitStack() as ends:
        yield (await resolve_sandbox(options, None, ends)).provider
