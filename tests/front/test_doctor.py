"""`pinfold doctor`: what works is proven, what does not is named with its fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.conftest import command
from tests.model.servers import Says, serving

from pinfold.sandbox.providers.doctor import Facts, advice
from pinfold.sandbox.providers.landlock import landlock_abi

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Pinfold = Callable[..., Any]
WAIT = ("--wait", "100")
"""So that a busy machine is no fault."""
WORKING = {"user_namespaces": "", "mounts": "", "seccomp": ""}
REFUSED = {"user_namespaces": "EPERM", "mounts": "EPERM", "seccomp": ""}


def test_what_works_is_proven_and_timed_and_a_weaker_level_is_shown_with_what_it_lacks(pinfold: Pinfold) -> None:
    done = pinfold("doctor", "--json", *WAIT)
    assert done.code == 0
    report = json.loads(done.out)
    found = {item["name"]: item for item in report["sandboxes"]}
    full = found["namespaces"]
    assert (full["status"], full["level"], full["cause"], full["fix"]) == ("proven", "full", None, None)
    assert full["first_result_ms"] > 0
    assert full["environment"]["python"].startswith("3.")
    assert report["kernel"]["user_namespaces"]
    assert report["kernel"]["seccomp"]
    assert "unsafe-local" not in found
    assert report["auto"] == "namespaces"
    assert (full["level"], full["lacks"]) == ("full", [])
    if landlock_abi():
        lite = found["landlock"]
        assert lite["level"] == "lite"
        assert "--allow-unmasked" in dict(lite["lacks"])["secrets in the workspace"]
    checks = report["checks"]
    assert {check["standing"] for check in checks} <= {"ok", "note"}
    assert all(check["fix"] for check in checks if check["standing"] != "ok")
    assert {check["what"] for check in checks} >= {"pinfold", "Python", "uv", "settings", "this folder", "data"}
    (environment,) = [check for check in checks if check["what"] == "environment"]
    assert (environment["standing"], environment["fix"]) == ("note", "pinfold env build")


def test_the_page_fits_eighty_columns_and_says_the_same(pinfold: Pinfold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = pinfold("doctor", *WAIT)
    assert done.code == 0
    assert "  ok    namespaces     Full isolation verified; starts in" in done.out
    assert "fix: pinfold env build" in done.out
    assert done.out.splitlines()[-1].startswith("no faults, ")
    # A path is never broken: it could not be copied.
    assert all(len(line) <= 80 or "/" in line for line in done.out.splitlines())


def test_each_fault_is_named_with_its_cause_and_its_fix_and_none_takes_long(
    pinfold: Pinfold, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "xdg" / "config" / "pinfold"
    config.mkdir(parents=True, mode=0o700)
    key = "sk-heron-0123456789abcdefghij"
    with serving(Says(status=401, steps=(b'{"error": {"message": "no"}}',), kind="application/json")) as server:
        model = f"{server.url}/v1#m"
        (config / "config.toml").write_text(
            f"[model]\nname = '{model}'\nkey_env = 'SHOP_API_KEY'\n"
            f"[data.shop]\nurl = 'sqlite:///{tmp_path}/gone.db'\n"
            "[sandbox]\npython = '/no/python'\n"
        )
        monkeypatch.setenv("SHOP_API_KEY", key)
        monkeypatch.setenv("PINFOLD_RUN_MAX_STEP", "3")
        silent = {"command": "/bin/sleep", "args": ["1000"]}
        (config / "mcp.json").write_text(json.dumps({"mcpServers": {"silent": silent}}))
        (config / "mcp.json").chmod(0o600)
        (config / "rules.toml").touch()
        (config / "rules.toml").chmod(0o666)
        (tmp_path / "xdg" / "cache" / "pinfold").mkdir(parents=True)
        (tmp_path / "xdg" / "cache" / "pinfold").chmod(0o755)
        (workspace / "AGENTS.md").write_text("Use tabs.")
        began = monotonic()
        done = pinfold("doctor", "--json", "--sandbox", "namespaces", "--wait", "6")
        took_s = monotonic() - began
    report = json.loads(done.out)
    found = {check["what"]: (check["standing"], check["cause"], check["fix"]) for check in report["checks"]}
    wanted = {
        model: ("fault", "401 Unauthorized: no", "check the key in SHOP_API_KEY"),
        "shop": ("fault", "gone.db", "pinfold config set data.shop.url"),
        "environment": ("fault", "the Python /no/python does not exist", "sandbox.python"),
        "PINFOLD_RUN_MAX_STEP": ("note", "sets nothing", "did you mean PINFOLD_RUN_MAX_STEPS?"),
        "silent": ("fault", "no answer within 6 s", "pinfold doctor --wait 60"),
        "rules.toml": ("fault", "is open to other users", f"chmod go-w {config / 'rules.toml'}"),
        "cache": ("fault", "is open to other users", "chmod 700"),
        "this folder": ("note", "it is not trusted", f"pinfold trust {workspace}"),
    }
    for what, (standing, cause, fix) in wanted.items():
        assert found[what][0] == standing, what
        assert cause in found[what][1], what
        assert fix in found[what][2], what
    assert (done.code, report["ok"]) == (1, False)
    assert key not in done.out
    assert took_s < 100  # 7 s by itself; the rest is for a busy machine
    (config / "config.toml").write_text("[run]\nmax_step = 3\n")
    (config / "mcp.json").unlink()
    broken = json.loads(pinfold("doctor", "--json", "--sandbox", "namespaces", *WAIT).out)
    (settings,) = [check for check in broken["checks"] if check["what"] == "settings"]
    assert "did you mean 'max_steps'?" in settings["cause"]
    assert settings["fix"] == "pinfold config edit"


def test_a_sandbox_without_isolation_is_started_only_by_name_and_is_not_enough(pinfold: Pinfold) -> None:
    done = pinfold("doctor", "--sandbox", "unsafe-local", "--json", *WAIT)
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
    asked = command("doctor", "--json", "--sandbox", "namespaces", *WAIT)
    done = subprocess.run([*arguments, *asked], capture_output=True, text=True, cwd=workspace, check=False)
    if "/proc/sys/user/max_user_namespaces" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("the setting cannot be changed here, not even for a namespace")
    report = json.loads(done.stdout)
    (found,) = report["sandboxes"]
    assert (done.returncode, found["status"]) == (1, "refused")
    assert "user.max_user_namespaces is 0" in found["cause"]
    assert found["fix"].startswith("sudo sysctl -w user.max_user_namespaces=")
    assert not report["kernel"]["user_namespaces"]


@pytest.mark.slow
def test_a_sandbox_of_someone_elses_is_tried_and_its_failure_named(
    tmp_path: Path, pinfold: Pinfold, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text(
        "from pinfold.sandbox.guests import UnsafeLocal\n"
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
    report = json.loads(pinfold("doctor", "--json", *WAIT).out)
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
