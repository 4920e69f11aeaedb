"""How much memory a control group is said to use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinfold.guest.kernel.groups import memory_in_use

pytestmark = pytest.mark.unit

VERSION_1 = "cache 900\nrss 10\nshmem 5\nhierarchical_memory_limit 4096\ntotal_cache 900\ntotal_rss 30\ntotal_shmem 7\n"
VERSION_2 = "anon 30\nfile 900\nkernel 4\nshmem 7\nfile_dirty 3\n"


@pytest.mark.parametrize(("stat", "used"), [(VERSION_1, 37), (VERSION_2, 41)])
def test_the_cache_of_files_on_disk_is_not_counted(tmp_path: Path, stat: str, used: int) -> None:
    path = tmp_path / "memory.stat"
    path.write_text(stat, encoding="ascii")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert memory_in_use(descriptor) == used
    finally:
        os.close(descriptor)
