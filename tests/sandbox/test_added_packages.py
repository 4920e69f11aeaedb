"""Packages added to a live session: unpacked by the host, imported inside, after everything the environment has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.wheels import Index

from pinfold.sandbox import Spec
from pinfold.sandbox.environment import EnvironmentFailed, build, install
from pinfold.sandbox.guests import UnsafeLocal

pytestmark = pytest.mark.integration
PYTHON = Path(sys.executable)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


async def test_a_live_session_imports_what_was_installed_meanwhile(index: Index, site: Path, workspace: Path) -> None:
    index.add("heron", requires=("twig",))
    index.add("twig")
    session = await UnsafeLocal().open(Spec(workspace=workspace, site=site))
    try:
        assert (await session.run("import heron")).status == "error"
        assert install("heron", site, PYTHON) == {"heron": "1.0", "twig": "1.0"}
        assert (await session.run("import heron, twig\nheron.version")).value == "'1.0'"
        await session.run("import os; os._exit(1)")
        assert (await session.run("import heron\nheron.__file__")).value == repr(str(site / "0001" / "heron.py"))
    finally:
        await session.close()


async def test_a_session_that_broke_its_import_path_goes_on(index: Index, site: Path, workspace: Path) -> None:
    index.add("heron")
    session = await UnsafeLocal().open(Spec(workspace=workspace, site=site))
    try:
        await session.run("import sys\nsys.path = None")
        install("heron", site, PYTHON)
        assert (await session.run("1 + 1")).value == "2"
    finally:
        await session.close()


def test_what_the_environment_has_is_neither_repeated_nor_replaced(index: Index, site: Path) -> None:
    environment = build(lock=index.add("heron"))
    index.add("heron", "2.0")
    index.add("nest", requires=("heron",))
    assert install("nest", site, environment.python) == {"nest": "1.0"}
    assert install("heron", site, environment.python) == {}
    with pytest.raises(EnvironmentFailed, match="heron"):
        install("heron>=2", site, environment.python)
    assert [path.name for path in site.iterdir()] == ["0001"]


def test_the_programs_of_a_package_run_in_the_environment(index: Index, site: Path) -> None:
    environment = build(lock=index.add("heron"))
    index.add("nest", files={"nest.py": "import heron\ndef main(): print('nest of a', heron.__name__)\n"})
    install("nest", site, environment.python)
    program = site / "0001" / "bin" / "nest"
    ran = subprocess.run([program], env={"PYTHONPATH": str(site / "0001")}, capture_output=True, check=True)
    assert ran.stdout == b"nest of a heron\n"


def test_a_second_installation_builds_on_the_first(index: Index, site: Path) -> None:
    index.add("twig")
    index.add("nest", requires=("twig",))
    assert install("twig", site, PYTHON) == {"twig": "1.0"}
    assert install("nest", site, PYTHON) == {"nest": "1.0"}
    assert install("nest", site, PYTHON) == {}


def test_what_cannot_be_installed_leaves_nothing(index: Index, site: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    index.add_source("trap", "1.0", f"open({str(canary)!r}, 'w').close()\n")
    for package, words in (
        ("nosuch", "no package 'nosuch'"),
        ("trap", "has no wheel"),
        ("../x", "is not a package name"),
    ):
        with pytest.raises(EnvironmentFailed, match=words):
            install(package, site, PYTHON)
    assert not canary.exists()
    assert not site.exists() or list(site.iterdir()) == []


def test_nothing_that_is_installed_runs_on_the_host(index: Index, site: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    trap = f"import os; open({str(canary)!r}, 'w').close()\n"
    index.add("trap", files={"trap.py": trap, "trap.pth": trap, "sitecustomize.py": trap})
    environment = build(["trap"], lock="")
    index.add("heron")
    install("heron", site, environment.python)
    assert not canary.exists()
    # The trap is a real one: the environment's own Python steps into it.
    subprocess.run([environment.python, "-c", ""], check=True)
    assert canary.exists()


def test_the_real_package_index_serves_too(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    try:
        added = install("iniconfig==2.0.0", site, build(lock="").python)
    except EnvironmentFailed as failure:
        if "cannot be reached" in str(failure):
            pytest.skip(str(failure))
        raise
    assert added == {"iniconfig": "2.0.0"}
    assert (site / "0001" / "iniconfig" / "__pycache__").is_dir()
