"""`landlock`: what a lite session can and cannot do, each with the same program run where it can.

Every program here is harmless in itself: the bait is our own, and the control is what runs it without isolation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from pinfold.sandbox import Provider, Session, Spec, provider_named
from pinfold.sandbox.canaries import holes
from pinfold.sandbox.landlock import Landlock, landlock_abi
from pinfold.testing import SANDBOX_CHECKS, Check, CheckResult, run_check

pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock"),
]
LOCAL = provider_named("unsafe-local")
LITE = Landlock()


@asynccontextmanager
async def opened(provider: Provider, spec: Spec) -> AsyncGenerator[Session]:
    session = await provider.open(spec)
    try:
        yield session
    finally:
        await session.close()


async def said(provider: Provider, spec: Spec, code: str) -> str:
    async with opened(provider, spec) as session:
        outcome = await session.run(code, timeout_s=20)
    return (outcome.stdout + (outcome.error or "")).strip()


@pytest.mark.parametrize("check", SANDBOX_CHECKS, ids=lambda check: check.name.replace(" ", "-"))
async def test_landlock_keeps_the_contract(check: Check) -> None:
    result = await run_check(check, LITE)
    if result.verdict == "skipped":
        pytest.skip(result.reason)
    assert result == CheckResult(name=check.name, verdict="passed")


async def test_nothing_gets_out_and_the_same_attempts_do_where_nothing_is_shut(workspace: Path) -> None:
    async with opened(LITE, Spec(workspace=workspace)) as session:
        assert await holes(session) == []
    async with opened(LOCAL, Spec(workspace=workspace)) as session:
        found = await holes(session)
    assert len(found) >= 14, found


def test_the_page_of_sandboxes_is_up_to_date() -> None:
    root = Path(__file__).parents[2]
    spec = spec_from_file_location("sandboxes", root / "scripts" / "sandboxes.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.page()


CONTRACT = """
import anyio, os
from pinfold.sandbox.landlock import Landlock
from pinfold.testing import SANDBOX_CHECKS, SandboxReport, run_check
async def main():
    results = [None] * len(SANDBOX_CHECKS)
    async def one(place, check):
        async with limiter:
            results[place] = await run_check(check, Landlock())
    limiter = anyio.CapacityLimiter(4)
    async with anyio.create_task_group() as tasks:
        for place, check in enumerate(SANDBOX_CHECKS):
            tasks.start_soon(one, place, check)
    report = SandboxReport(provider="landlock", results=tuple(results))
    print(os.getuid(), report.ok, report.failed)
anyio.run(main)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
@pytest.mark.timeout(180)
def test_an_ordinary_user_has_the_same_sandbox() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONTRACT],
        user=1234,
        group=1234,
        extra_groups=[],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": "/tmp"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    if "Permission denied" in done.stderr and "pinfold" not in done.stdout and not done.stdout:
        pytest.skip("this Python cannot be reached by another user")
    assert done.stdout == "1234 True ()\n", done


WITHOUT_NAMESPACES = """
import anyio, sys
from pinfold.sandbox import SandboxUnavailable, open_session, provider_named
async def main():
    provider = provider_named(sys.argv[1])
    try:
        async with open_session(provider=provider) as session:
            print("ran", (await session.run("6 * 7")).value, provider.name, provider.notice)
    except SandboxUnavailable as refused:
        print("refused:", refused)
anyio.run(main)
"""


@pytest.mark.parametrize(
    ("name", "begins", "names"),
    [
        ("auto", "ran 42 landlock", "`sudo sysctl user.max_user_namespaces=15000`"),
        ("landlock", "ran 42 landlock", "no network at all"),
        ("namespaces", "refused: the zygote did not start", "max_user_namespaces"),
    ],
)
def test_where_user_namespaces_are_refused_auto_goes_down_and_a_name_does_not(
    name: str, begins: str, names: str
) -> None:
    shut = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1" "$2"'
    unshare = ["unshare", "--user", "--map-root-user", "sh", "-c", shut]
    done = subprocess.run(
        [*unshare, sys.executable, WITHOUT_NAMESPACES, name], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(begins), done
    assert names in done.stdout
