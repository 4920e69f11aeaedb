"""The sessions API of a real `pinfold serve`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.front.server.served import Served, begin, create, end, follow, say, until

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


def _cell(code: str) -> dict[str, Any]:
    return {"calls": [{"tool": "python", "args": {"code": code}}]}


MAKES = _cell("x = 6 * 7\nopen('made.txt', 'w').write(str(x))\nprint(x)")
ASKS = {"calls": [{"tool": "write_file", "args": {"path": "AGENTS.md", "content": "be kind"}}]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("served")
    for name, replies in {"makes": [MAKES, {"text": "It is 42."}], "asks": [ASKS, {"text": "written"}]}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies * 3))
    with pytest.MonkeyPatch.context() as environment:
        for name in ("config", "data", "state", "cache"):
            environment.setenv(f"XDG_{name.upper()}_HOME", str(folder / name))
        environment.setenv("HOME", str(folder))
        environment.setenv("PINFOLD_SANDBOX_BUILD", "off")
        (folder / "workspace").mkdir()
        served = begin(folder / "workspace", "--model", f"scripted:{folder / 'makes.jsonl'}")
    yield served
    assert end(served) == 0


@pytest.fixture
def client(served: Served) -> Generator[httpx2.Client]:
    with served.client() as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace of the test's own."""
    made = tmp_path / "own"
    made.mkdir()
    return made


def other_model(served: Served, client: httpx2.Client, name: str) -> str:
    model = client.get("/api/about").json()["model"]
    return model.replace("makes.jsonl", f"{name}.jsonl")


def test_a_turn_is_submitted_and_followed_and_a_reader_who_comes_back_misses_nothing(
    client: httpx2.Client, folder: Path
) -> None:
    session = create(client, title="first", workspace=str(folder))
    told = say(client, session)
    assert told[-1]["text"] == "It is 42."
    assert (folder / "made.txt").read_text() == "42"
    with follow(client, session) as events:
        whole = [one for one in until(events, "TurnEnded") if "seq" in one]
    half = whole[len(whole) // 2]["seq"]
    with follow(client, session, last=str(half)) as events:
        rest = [one for one in until(events, "TurnEnded") if "seq" in one]
    assert rest == [one for one in whole if one["seq"] > half]
    listed = client.get(f"/api/sessions/{session}/events", headers={"Accept": "application/json"}).json()["events"]
    assert listed[: len(whole)] == whole


def test_undo_redo_and_a_branch_from_an_earlier_cell(client: httpx2.Client, folder: Path) -> None:
    session = create(client, workspace=str(folder))
    url = f"/api/sessions/{session}"
    for code in ("a = 1", "b = 2; open('b.txt', 'w').write('b')"):
        accepted = client.post(f"{url}/commands", json={"kind": "Execute", "code": code}).json()
        with follow(client, session, accepted["seq"]) as events:
            until(events, "ActionFinished")

    def names(of: str = session) -> list[str]:
        return [one["name"] for one in client.get(f"/api/sessions/{of}/variables").json()["variables"]]

    assert names() == ["a", "b"]
    rewound = client.post(f"{url}/undo", json={}).json()
    assert (rewound["kind"], rewound["to"], rewound["undone"]) == ("SessionRewound", 1, [2])
    assert names() == ["a"]
    assert not (folder / "b.txt").exists()
    again = client.post(f"{url}/redo").json()
    assert (again["redone"], again["again"]) == ([2], True)
    assert names() == ["a", "b"]
    branch = client.post(f"{url}/fork", json={"title": "other way", "to": 1}).json()
    assert (branch["source"], branch["title"]) == (session, "other way")
    assert names(branch["id"]) == ["a"]
    assert names() == ["a", "b"]
    assert (folder / "b.txt").exists(), "a branch leaves the files to the session it came from"


def test_a_question_waits_until_it_is_answered_and_the_digest_must_be_its_own(
    served: Served, client: httpx2.Client, folder: Path
) -> None:
    session = create(client, workspace=str(folder), mode="ask", model=other_model(served, client, "asks"))
    url = f"/api/sessions/{session}"
    accepted = client.post(f"{url}/commands", json={"kind": "Say", "text": "go"}).json()
    with follow(client, session, accepted["seq"]) as events:
        asked = until(events, "ApprovalRequested")[-1]
    (waiting,) = client.get(f"{url}/approvals").json()["approvals"]
    assert waiting["id"] == asked["id"]
    assert "be kind" in json.dumps(waiting["action"])
    answer = {"digest": "0" * 64, "verdict": "allow"}
    assert client.post(f"{url}/approvals/{asked['id']}", json=answer).status_code == 409
    assert not (folder / "AGENTS.md").exists()
    answer["digest"] = waiting["request"]["digest"]
    assert client.post(f"{url}/approvals/{asked['id']}", json=answer).status_code == 204
    with follow(client, session, accepted["seq"]) as events:
        until(events, "TurnEnded")
    assert (folder / "AGENTS.md").read_text() == "be kind"
    assert client.get(f"{url}/approvals").json() == {"approvals": []}


def test_files_go_in_and_come_out_and_nothing_outside_the_folder_does(client: httpx2.Client, folder: Path) -> None:
    session = create(client, workspace=str(folder))
    url = f"/api/sessions/{session}/files"
    data = bytes(range(256)) * 1000
    binary = {"Content-Type": "application/octet-stream"}
    assert client.put(f"{url}/deep/er/ünï.bin", content=data, headers=binary).json() == {"paths": ["deep/er/ünï.bin"]}
    assert (folder / "deep" / "er" / "ünï.bin").read_bytes() == data
    got = client.get(f"{url}/deep/er/ünï.bin")
    assert got.content == data
    assert got.headers["content-disposition"].startswith("attachment")
    form = client.post(url, files=[("files", ("a.csv", b"x\n1\n")), ("files", ("b.csv", b"y\n"))])
    assert form.json() == {"paths": ["a.csv", "b.csv"]}
    entries = client.get(url).json()["entries"]
    assert [(one["name"], one["type"]) for one in entries] == [("deep", "folder"), ("a.csv", "file"), ("b.csv", "file")]
    (folder / ".env").write_text("KEY=secret")
    (folder / "way-out").symlink_to("/etc")
    (folder / "hosts").symlink_to("/etc/hostname")
    for path in ("..%2f..%2fetc%2fhostname", "way-out/hostname", "hosts", ".env", "nowhere", "deep", "a%00b"):
        refused = client.get(f"{url}/{path}")
        assert refused.status_code in (403, 404), (path, refused.text)
    for path in ("..%2fup.txt", "way-out/x", "hosts", ".env", ".git/config", "deep"):
        assert client.put(f"{url}/{path}", content=b"x", headers=binary).status_code in (403, 404), path
    assert ".env" not in str(client.get(url).json())
    assert (folder / ".env").read_text() == "KEY=secret"


def test_rows_of_a_table_are_sorted_and_filtered_in_the_session(client: httpx2.Client) -> None:
    session = create(client)
    url = f"/api/sessions/{session}"
    code = "table = [{'n': i, 'word': 'ab'[i % 2]} for i in range(1000)]"
    accepted = client.post(f"{url}/commands", json={"kind": "Execute", "code": code}).json()
    with follow(client, session, accepted["seq"]) as events:
        until(events, "ActionFinished")
    query: dict[str, Any] = {"offset": 1, "limit": 2, "sort": "n", "descending": True, "filter": "B", "column": "word"}
    page = client.get(f"{url}/variables/table", params=query).json()
    assert (page["rows"], page["total"], page["matching"]) == ([[997, "b"], [995, "b"]], 1000, 500)
    assert [column["name"] for column in page["columns"]] == ["n", "word"]
    assert client.get(f"{url}/variables/tabel").status_code == 404
    assert client.get(f"{url}/variables/table", params={"sort": "m"}).status_code == 404
    assert client.get(f"{url}/variables/table", params={"limit": 0}).status_code == 422


def test_a_session_is_renamed_found_exported_and_removed(client: httpx2.Client, folder: Path) -> None:
    session = create(client, workspace=str(folder))
    say(client, session, "please compute the zebra")
    response = client.patch(f"/api/sessions/{session}", json={"title": "stripes", "mode": "ask"})
    assert response.status_code == 200, response.text
    renamed = response.json()
    assert (renamed["title"], renamed["status"]["mode"]) == ("stripes", "ask")
    found = client.get("/api/sessions", params={"search": "zebra"}).json()["sessions"]
    assert [one["id"] for one in found] == [session]
    assert "zebra" in found[0]["matches"][0]
    for form, sign in {"md": b"# stripes", "ipynb": b'"cells"', "html": b"<!doctype html", "jsonl": b'"seq":1'}.items():
        export = client.get(f"/api/sessions/{session}/export", params={"format": form})
        assert sign in export.content.lower() if form == "html" else sign in export.content, form
        assert "attachment" in export.headers["content-disposition"]
    assert client.get(f"/api/sessions/{session}/export", params={"format": "exe"}).status_code == 422
    assert client.delete(f"/api/sessions/{session}").status_code == 204
    assert client.get(f"/api/sessions/{session}").status_code == 404
    assert client.get(f"/api/sessions/{session}/events").status_code == 404


def test_bad_input_gets_one_clear_line(client: httpx2.Client) -> None:
    session = create(client)
    url = f"/api/sessions/{session}"
    for method, path, body, status, words in (
        ("POST", "/api/sessions", {"mode": "wild"}, 422, "Invalid enum value 'wild'"),
        ("POST", "/api/sessions", {"colour": 1}, 422, "unknown field `colour`"),
        ("POST", "/api/sessions", {"workspace": "relative"}, 422, "matching regex '^/'"),
        ("POST", "/api/sessions", {"workspace": "/nowhere/at/all"}, 409, "/nowhere/at/all"),
        ("POST", f"{url}/commands", {"kind": "Dance"}, 422, "Dance"),
        ("POST", f"{url}/commands", {}, 422, "kind"),
        ("POST", f"{url}/undo", {}, 409, "no cell to undo"),
        ("POST", f"{url}/fork", {"title": "half-made", "to": 99}, 409, "99"),
        ("POST", "/api/sessions/s_none/undo", {}, 404, "there is no session"),
        ("GET", f"{url}/blobs/sha256:00", None, 404, ""),
        ("PUT", "/api/sessions", {}, 405, "this path takes"),
        ("GET", "/v1/chat/completions", None, 405, "this path takes POST"),
        ("GET", "/api/nothing", None, 404, "GET /docs lists"),
    ):
        response = client.request(method, path, json=body)
        assert response.status_code == status, (path, body, response.text)
        message = response.json()["error"]["message"]
        assert words.lower() in message.lower(), message
        assert "\n" not in message
        assert response.json()["error"]["type"] != "not_found_error" or status == 404
    assert "half-made" not in client.get("/api/sessions").text, "a branch that cannot be had leaves nothing"
    assert client.post("/api/sessions", content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    assert client.put("/api/sessions", json={}).headers["allow"] == "GET, HEAD, POST"
    described = client.get("/openapi.json").json()
    walked = {(method, path) for path, one in described["paths"].items() for method in one}
    assert {("post", "/v1/chat/completions"), ("delete", "/v1/files/{file}"), ("post", "/agui")} <= walked
    assert described["components"]["schemas"]["ChatRequest"]["required"] == ["messages"]


def test_the_code_of_the_address_logs_a_page_in_once(served: Served) -> None:
    with httpx2.Client(base_url=served.url, trust_env=False) as page:
        assert page.get("/api/about").status_code == 401
        token = page.post("/api/login", json={"code": served.code}).json()["token"]
        assert page.get("/api/about", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert page.post("/api/login", json={"code": served.code}).status_code == 403
        assert token not in "".join(served.said)
        assert served.token not in "".join(served.said)


def test_the_demo_is_one_click_away(client: httpx2.Client) -> None:
    session = create(client, demo=True)
    listed = client.get(f"/api/sessions/{session}/files").json()["entries"]
    assert [one["name"] for one in listed] == ["sales.csv"]


def test_a_server_that_is_killed_loses_nothing_and_the_terminal_goes_on_after_it_ends(
    workspace: Path, script: Callable[..., str], pinfold: Callable[..., Any]
) -> None:
    model = script(_cell("x = 6 * 7"), {"text": "It is 42."})
    killed = begin(workspace, "--model", model)
    with killed.client() as client:
        session = create(client)
        before = [one for one in say(client, session) if "seq" in one]
    killed.process.send_signal(signal.SIGKILL)
    end(killed)
    again = begin(workspace, "--model", model)
    try:
        with again.client() as client:
            with follow(client, session) as events:
                after = [one for one in until(events, "TurnEnded") if "seq" in one]
            assert [one for one in after if one["seq"] >= before[0]["seq"]] == before
            assert [one["name"] for one in client.get(f"/api/sessions/{session}/variables").json()["variables"]] == [
                "x"
            ]
            through = pinfold("exec", "-s", session, "-c", "x += 1; print(x)")
            assert through.out == "43\n", "another command works through the server"
    finally:
        assert end(again) == 0
    assert pinfold("exec", "-s", session, "-c", "print(x)").out == "43\n"


def test_a_taken_port_and_a_reachable_address_are_refused_with_what_to_do(
    served: Served, pinfold: Callable[..., Any]
) -> None:
    port = served.url.rpartition(":")[2]
    taken = pinfold("serve", "--port", port, "--no-open")
    assert taken.code == 2
    assert f"port {port} is taken; --port " in taken.err
    open_to_all = pinfold("serve", "--host", "0.0.0.0", "--port", "0", "--no-open")
    assert open_to_all.code == 2
    assert "use --expose and --token-file" in open_to_all.err
