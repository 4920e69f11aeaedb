"""`pinfold serve` as a daemon: started, found, reached and ended by other commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


def test_a_daemon_is_started_found_and_ended_and_its_session_goes_on_in_the_terminal(
    pinfold: Callable[..., Any], start: Callable[..., Any], workspace: Path, script: Callable[..., str]
) -> None:
    assert pinfold("serve", "status").code == 1
    assert pinfold("serve", "stop").out == "pinfold serve is not running\n"
    model = script({"text": "hello"})
    begun, problems = start("serve", "--daemon", "--no-open", "--port", "0", "--model", model).communicate(timeout=120)
    assert "pinfold serve runs as process" in begun, problems
    try:
        url, _, code = begun.split()[-1].partition("/#code=")
        token = pinfold("serve", "token").out.strip()
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as page:
            own = page.post("/api/login", json={"code": code}).json()["token"]
            page.headers["Authorization"] = f"Bearer {own}"
            session = page.post("/api/sessions", json={}).json()["id"]
            assert page.get("/health").json() == {"status": "ok"}
            assert page.get("/api/about", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        about = json.loads(pinfold("serve", "status", "--json").out)
        assert (about["running"], about["url"]) == (True, url)
        assert pinfold("exec", "-s", session, "-c", "x = 5").code == 0
        again = pinfold("serve", "--daemon", "--no-open", "--port", "0")
        assert (again.code, "runs already" in again.err) == (2, True)
    finally:
        ended = pinfold("serve", "stop")
    assert ended.out == "pinfold serve has ended\n"
    assert pinfold("exec", "-s", session, "-c", "print(x)").out == "5\n"


def test_a_token_file_is_made_for_its_user_alone_and_kept(pinfold: Callable[..., Any]) -> None:
    made = pinfold("serve", "token").out.strip()
    assert len(made) >= 32
    assert pinfold("serve", "token").out.strip() == made


def test_the_unit_runs_the_same_command(start: Callable[..., Any]) -> None:
    out, _ = start("serve", "--unit", "--port", "8123", "--mode", "ask").communicate(timeout=200)
    assert f"ExecStart={sys.executable} -m pinfold serve --port 8123 --mode ask --no-open\n" in out
    assert "WantedBy=default.target" in out
