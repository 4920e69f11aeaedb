"""What runs weights is made once, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import uv

from pinfold.model.errors import RuntimeMissing
from pinfold.model.local import builtin as module
from pinfold.model.local.builtin import VERSION, place, runtime

pytestmark = pytest.mark.integration

UV = Path(uv.find_uv_bin())


def test_the_pin_has_a_hash_for_each_wheel_and_nothing_else() -> None:
    first, *hashes = module.REQUIREMENTS.read_text().replace("\\\n", "").split()
    assert first == f"xllamacpp=={VERSION}"
    assert hashes
    assert all(word.startswith("--hash=sha256:") for word in hashes)


def test_it_can_be_imported_from_its_folder_by_another_process(llama: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(llama)!r}); import xllamacpp; print(xllamacpp.__version__)"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == VERSION


async def test_what_is_there_needs_no_uv(llama: Path) -> None:
    told: list[str] = []
    assert await runtime(llama.parent, None, told.append) == llama
    assert told == []


async def test_without_uv_and_without_it_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeMissing, match=r"pinfold extras add local"):
        await runtime(tmp_path, None, print)


async def test_an_index_without_it_leaves_nothing_behind(tmp_path: Path, index: object) -> None:
    with pytest.raises(RuntimeMissing, match=r"could not be installed: .*xllamacpp") as caught:
        await runtime(tmp_path / "runtimes", UV, lambda _: None)
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "runtimes").iterdir()] == [".lock"]


async def test_what_a_killed_installation_left_is_removed(tmp_path: Path, llama: Path) -> None:
    folder = tmp_path / "runtimes"
    (folder / ".new-abc" / "site").mkdir(parents=True)
    told: list[str] = []
    async with anyio.create_task_group() as tasks:  # two at once do it once
        tasks.start_soon(runtime, folder, UV, told.append)
        tasks.start_soon(runtime, folder, UV, told.append)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", place(folder).name]
    assert told == ["fetching llama.cpp (35 MB), once"]
