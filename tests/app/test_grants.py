"""What was allowed for always: by folder, whole for every reader, gone when revoked."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path

import pytest

from pinfold.app import ConfigError
from pinfold.app.trust.workspace_trust import Grants

pytestmark = pytest.mark.unit
HERE, THERE = Path("/here"), Path("/there")


def test_a_grant_holds_in_its_folder_alone(tmp_path: Path) -> None:
    grants = Grants(tmp_path)
    grants.add("tool: send", HERE)
    grants.add("tool: send", HERE)
    grants.add("network: example.org:443", THERE)
    again = Grants(tmp_path)
    assert again.of(HERE) == {"tool: send"}
    assert again.of(THERE) == {"network: example.org:443"}
    assert again.of(Path("/")) == frozenset()
    assert len(again.all()) == 2
    assert again.file.stat().st_mode & 0o777 == 0o600


def test_a_grant_is_revoked_in_one_folder_or_in_all(tmp_path: Path) -> None:
    grants = Grants(tmp_path)
    for place in (HERE, THERE):
        grants.add("tool: send", place)
    assert grants.revoke("tool: send", HERE) == 1
    assert (grants.of(HERE), grants.of(THERE)) == (frozenset(), {"tool: send"})
    assert grants.revoke("tool: send") == 1
    assert grants.revoke("tool: send") == 0


def _add(folder: Path, number: int) -> None:
    for place in range(20):
        Grants(folder).add(f"tool: t{number}", Path(f"/{place}"))


def test_nothing_is_lost_when_several_processes_grant_at_once(tmp_path: Path) -> None:
    workers = [get_context("fork").Process(target=_add, args=(tmp_path, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(Grants(tmp_path).all()) == 80


def test_a_damaged_file_grants_nothing_and_is_named(tmp_path: Path) -> None:
    grants = Grants(tmp_path)
    grants.file.write_text('[{"pattern": 3}]')
    grants.file.chmod(0o600)
    with pytest.raises(ConfigError, match=r"grants\.json is damaged"):
        grants.of(HERE)
