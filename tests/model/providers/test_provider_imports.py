"""What is imported when, and what is said where something is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pinfold.model import Access, NoKey, NotInstalled, model_named

pytestmark = pytest.mark.integration
HEAVY = ("pydantic_ai", "anthropic", "google", "genai_prices", "httpx2", "boto3", "groq", "mistralai")


def python(program: str, *flags: str, path: Path | None = None) -> Any:
    """What a fresh interpreter prints, as JSON."""
    env = {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run(
        [sys.executable, *flags, "-c", program], capture_output=True, text=True, timeout=200, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def loaded_by(program: str) -> set[str]:
    listing = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    return set(python(f"{program}\n{listing}"))


@pytest.mark.parametrize(
    "program",
    [
        "import pinfold.model, pinfold.model.providers, pinfold.model.layers",
        "from pinfold.app import *\nimport pinfold.hooks",
        "from pinfold.model.providers import DirectModel; DirectModel('anthropic', 'claude-opus-5', name='x', key='k')",
    ],
)
def test_no_sdk_is_imported_before_it_is_asked(program: str) -> None:
    assert loaded_by(program) & set(HEAVY) == set()


def test_an_sdk_that_is_asked_is_imported() -> None:
    """The control: the list above is one that can be seen."""
    program = "import pydantic_ai.models.anthropic, pydantic_ai.models.google"
    assert {"pydantic_ai", "anthropic", "google", "genai_prices", "httpx2"} <= loaded_by(program)


@pytest.mark.slow
def test_warming_imports_in_a_thread_of_its_own() -> None:
    program = """
import json, sys, threading, time
from pinfold.model.providers import DirectModel
model = DirectModel("anthropic", "claude-opus-5", name="anthropic:claude-opus-5", key="k")
began = time.thread_time()
model.warm()
model.warm()
spent = time.thread_time() - began
others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
for thread in others:
    thread.join()
print(json.dumps([spent, len(others), "pydantic_ai.models.anthropic" in sys.modules]))
"""
    spent, threads, imported = python(program)
    assert (threads, imported) == (1, True)
    assert spent < 0.1


# Missing things


@pytest.fixture
def without_extra(tmp_path: Path) -> Path:
    """A folder to import from that holds our package and what it cannot do without."""
    import anyio
    import idna
    import msgspec
    import typing_extensions

    import pinfold

    folder = tmp_path / "site"
    folder.mkdir()
    for module in (anyio, idna, msgspec, pinfold):
        (folder / module.__name__).symlink_to(Path(module.__path__[0]))
    (folder / "typing_extensions.py").symlink_to(typing_extensions.__file__)
    return folder


ASKING = """
import json
from pinfold.model import ModelError, model_named
try:
    model_named({provider!r} + ":some-model")
except ModelError as error:
    print(json.dumps([type(error).__name__, str(error), error.exit_code]))
"""


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("anthropic", "anthropic: models need the extra `providers`: pinfold extras add providers"),
        ("cohere", "cohere: models need the extra `cohere`: pinfold extras add cohere"),
    ],
)
def test_without_the_extra_one_line_says_how_to_get_it(without_extra: Path, provider: str, said: str) -> None:
    answer = python(ASKING.format(provider=provider), "-S", path=without_extra)
    assert answer == ["NotInstalled", said, 2]


def test_without_one_sdk_the_extra_that_brings_it_is_named() -> None:
    with pytest.raises(NotInstalled) as caught:
        model_named("cohere:command-a", access=Access(keys={"CO_API_KEY": "k"}))
    assert caught.value.extra == "cohere"


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("google", "GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("google-gla", "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ],
)
def test_without_a_key_its_variable_is_named(provider: str, variables: str) -> None:
    with pytest.raises(NoKey) as caught:
        model_named(f"{provider}:some-model")
    assert f"needs a key: set {variables}" in str(caught.value)


VERTEX = """
import asyncio, json, os
from pinfold.events import Request, UserMessage
from pinfold.model import ModelError
from pinfold.model.providers import DirectModel

os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = "/nowhere/at/all.json"
model = DirectModel("google-vertex", "gemini-3-pro-preview", name="x")

async def ask():
    async for piece in model.stream(Request(system="", messages=(UserMessage(text="hello"),))):
        pass

try:
    asyncio.run(ask())
except ModelError as error:
    print(json.dumps(str(error)))
"""


def test_an_sdk_that_cannot_start_is_a_clear_error() -> None:
    # Vertex wants a project or a login; here is neither. What its SDK leaves half made then fails once more as it is
    # collected, in whatever loop there is: so this has a process of its own.
    assert "/nowhere/at/all.json" in python(VERTEX)
