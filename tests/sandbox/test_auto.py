"""`auto`: the strongest level that proves itself, found once; going down is said, going without is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pinfold.sandbox import Capabilities, SandboxUnavailable, Session, Spec, provider_named
from pinfold.sandbox.providers.auto import Auto

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is none to choose"),
]


class Level:
    """A level that can be had or not."""

    def __init__(self, name: str, refusal: str = "") -> None:
        self.name = name
        self.capabilities = Capabilities(isolated=True, mounts=True)
        self.notice = f"{name} is not much"
        self.probes = 0
        self._refusal = refusal

    async def probe(self, spec: Spec | None = None) -> None:  # noqa: ARG002 - nothing is prepared
        self.probes += 1
        if self._refusal:
            raise SandboxUnavailable(self._refusal)

    async def open(self, spec: Spec) -> Session:
        return await provider_named("unsafe-local").open(spec)


async def test_the_first_level_that_proves_itself_is_taken_and_remembered(workspace: Path) -> None:
    first, second = Level("first"), Level("second")
    auto = Auto(lambda: first, lambda: second)
    assert (auto.name, auto.notice, auto.capabilities) == (
        "auto",
        None,
        Capabilities(isolated=True, site=True, commands=True, read_only_commands=True),
    )
    for _ in range(2):
        await (await auto.open(Spec(workspace=workspace))).close()
    assert (auto.name, auto.notice, auto.capabilities) == ("first", first.notice, first.capabilities)
    assert (first.probes, second.probes) == (1, 0)


async def test_going_down_is_said_and_why() -> None:
    auto = Auto(lambda: Level("first", "no such kernel"), lambda: Level("second"))
    assert (await auto.resolve()).name == "second"
    assert auto.notice is not None
    assert auto.notice.startswith("Full isolation is refused here: ")
    assert auto.notice.endswith("Going on with second. second is not much")


async def test_where_no_level_can_be_had_every_cause_is_named(workspace: Path) -> None:
    auto = Auto(lambda: Level("first", "no such kernel"), lambda: Level("second", "no such module"))
    with pytest.raises(SandboxUnavailable, match="no isolation is available here: no such kernel; and no such module"):
        await auto.open(Spec(workspace=workspace))


def test_the_command_says_once_that_it_went_down_and_data_is_at_its_own_path(workspace: Path, tmp_path: Path) -> None:
    data = tmp_path / "numbers.csv"
    data.write_text("1,2,3")
    shut = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "sh", "-c", shut]
    code = f"for _ in range(2): print(open({str(data)!r}).read())"
    done = subprocess.run(
        [*unshare, sys.executable, "-m", "pinfold", "exec", "--data", str(data), "-c", code],
        cwd=workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "1,2,3\n" * 2, done
    assert done.stderr.count("Going on with landlock") == 1, done
