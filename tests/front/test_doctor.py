"""`pinfold doctor`: what works is proven, what does not is named with its fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import command

from pinfold.sandbox.advice import Facts, advice
from pinfold.sandbox.landlock import landlock_abi

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
Pinfold = Callable[..., Any]
WORKING = {"user_namespaces": "", "mounts": "", "seccomp": ""}
REFUSED = {"user_namespaces": "EPERM", "mounts": "EPERM", "seccomp": ""}


def test_what_works_is_proven_and_timed(pinfold: Pinfold) -> None:
    done = pinfold("doctor", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    (found,) = [item for item in report["sandboxes"] if item["name"] == "namespaces"]
    assert (found["status"], found["level"], found["cause"], found["fix"]) == ("proven", "full", None, None)
    assert found["first_result_ms"] > 0
    assert found["environment"]["python"].startswith("3.")
    assert report["kernel"]["user_namespaces"]
    assert report["kernel"]["seccomp"]
    assert "unsafe-local" not in [item["name"] for item in report["sandboxes"]]


@pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")
def test_a_weaker_level_is_shown_with_what_it_lacks_and_auto_takes_the_strongest(pinfold: Pinfold) -> None:
    report = json.loads(pinfold("doctor", "--json").out)
    levels = {item["name"]: (item["level"], dict(item["lacks"])) for item in report["sandboxes"]}
    assert levels["namespaces"] == ("full", {})
    level, lacks = levels["landlock"]
    assert level == "lite"
    assert "--allow-unmasked" in lacks["secrets in the workspace"]
    assert report["auto"] == "namespaces"


def test_the_page_fits_a_screen_and_says_the_same(pinfold: Pinfold) -> None:
    done = pinfold("doctor")
    assert done.code == 0
    assert "ok  namespaces     proven full, first result after" in done.out
    assert "memory of a session: " in done.out
    assert len(done.out.splitlines()) < 24


def test_a_sandbox_without_isolation_is_started_only_by_name_and_is_not_enough(pinfold: Pinfold) -> None:
    done = pinfold("doctor", "--sandbox", "unsafe-local", "--json")
    report = json.loads(done.out)
    assert (done.code, report["ok"]) == (1, False)
    assert [(item["name"], item["status"], item["level"]) for item in report["sandboxes"]] == [
        ("unsafe-local", "unsafe", "none")
    ]


def test_an_unknown_sandbox_is_refused_by_name(pinfold: Pinfold) -> None:
    done = pinfold("doctor", "--sandbox", "nowhere", "--json")
    (found,) = json.loads(done.out)["sandboxes"]
    assert (done.code, found["status"]) == (1, "refused")
    assert "there is no sandbox 'nowhere'" in found["cause"]


def test_where_namespaces_are_refused_the_setting_and_the_command_are_named(workspace: Path) -> None:
    shut = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    arguments = ["unshare", "--user", "--map-root-user", "sh", "-c", shut, "sh"]
    asked = command("doctor", "--json", "--sandbox", "namespaces")
    done = subprocess.run([*arguments, *asked], capture_output=True, text=True, cwd=workspace, check=False)
    if "/proc/sys/user/max_user_namespaces" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("the setting cannot be changed here, not even for a namespace")
    report = json.loads(done.stdout)
    (found,) = report["sandboxes"]
    assert (done.returncode, found["status"]) == (1, "refused")
    assert "user.max_user_namespaces is 0" in found["cause"]
    assert found["fix"].startswith("sudo sysctl -w user.max_user_namespaces=")
    assert not report["kernel"]["user_namespaces"]


def test_a_sandbox_of_someone_elses_is_tried_and_its_failure_named(
    tmp_path: Path, pinfold: Pinfold, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text(
        "from pinfold.sandbox.unsafe_local import UnsafeLocal\n"
        "from pinfold.sandbox import Capabilities\n"
        "class Boastful(UnsafeLocal):\n"
        "    name = 'boastful'\n"
        "    capabilities = Capabilities(isolated=True)\n"
        "class Broken(UnsafeLocal):\n"
        "    async def open(self, spec):\n"
        "        raise RuntimeError('no licence')\n",
        encoding="utf-8",
    )
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: theirs\nVersion: 1\n", encoding="utf-8")
    points = "[pinfold.sandboxes]\nboastful = theirs:Boastful\nbroken = theirs:Broken\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    report = json.loads(pinfold("doctor", "--json").out)
    found = {item["name"]: item for item in report["sandboxes"]}
    assert found["boastful"]["status"] == "leaky"
    assert "reads a file outside" in found["boastful"]["cause"]
    assert found["broken"]["status"] == "refused"
    assert "no licence" in found["broken"]["cause"]
    assert found["namespaces"]["status"] == "proven"


@pytest.mark.parametrize(
    ("facts", "cause", "fix"),
    [
        (Facts(system="darwin"), "no namespaces", "Linux"),
        (Facts(release="5.4.0-1", features=WORKING), "too old", "5.12"),
        (Facts(max_user_namespaces=0, features=REFUSED), "is 0", "sysctl -w user.max_user_namespaces="),
        (
            Facts(unprivileged_userns_clone=0, features=REFUSED),
            "unprivileged_userns_clone",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            Facts(apparmor_restricts=1, features=REFUSED),
            "AppArmor",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (Facts(container="docker", filtered=True, features=REFUSED), "docker", "--security-opt seccomp="),
        (Facts(container="kubernetes", features=REFUSED), "kubernetes", "seccompProfile"),
        (Facts(container="podman", features=WORKING), "/proc", "podman run"),
        (Facts(filtered=True, features=REFUSED), "filter", "RestrictNamespaces"),
    ],
)
def test_each_known_cause_has_its_fix(facts: Facts, cause: str, fix: str) -> None:
    said, command_ = advice(facts)
    assert cause in (said or "")
    assert fix in (command_ or "")


def test_nothing_is_blamed_where_nothing_is_wrong() -> None:
    assert advice(Facts(release="6.1.0", features=WORKING)) == (None, None)
