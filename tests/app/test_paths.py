"""What the host reads and writes in a workspace, attacked by path and by link; `bench/paths.py` does the same at length."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.paths import Scene, by_path, by_swap, host_step, plain_step

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


async def test_no_path_leads_the_host_outside(tmp_path: Path) -> None:
    told = await by_path(tmp_path)
    assert told["paths"] > 600
    assert (told["leaked"], told["control_works"]) == (0, True)


def test_no_swapped_link_leads_the_host_outside(tmp_path: Path) -> None:
    told = by_swap(tmp_path, 1500, host_step)
    assert (told["read"], told["wrote"]) == (0, 0)


def test_the_same_swaps_lead_plain_files_outside(tmp_path: Path) -> None:
    for attempt in range(20):  # as many as it takes
        folder = tmp_path / str(attempt)
        folder.mkdir()
        told = by_swap(folder, 1_000, plain_step)
        if told["read"] + told["wrote"]:
            return
    pytest.fail("no swap led outside")


def test_a_file_in_the_way_of_a_folder_is_left_alone(tmp_path: Path) -> None:
    from pinfold.sandbox import FileRefused
    from pinfold.sandbox.guards.protected_files import write_protected_file

    scene = Scene.made(tmp_path)
    with pytest.raises(FileRefused, match="a parent of it is not a folder"):
        write_protected_file("AGENTS.md/x", b"no", scene.workspace)
    assert (scene.workspace / "AGENTS.md").read_bytes() == b"inside"
