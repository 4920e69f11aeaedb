"""A real `pinfold serve` for the tests of a module, and unmodified clients of OpenAI against it."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openresponses_types import types as open_responses
from pydantic import BaseModel
from tests.front.server.served import Served, begin, create, end

_EVENTS: dict[str, type[BaseModel]] = {
    next(iter(one.model_fields["type"].annotation)).value: one
    for name, one in vars(open_responses).items()
    if name.endswith("StreamingEvent")
}
"""The events of a stream of responses, by type."""


@dataclass
class Wired:
    """A server, a client of its own API, and an OpenAI client whose answers are all checked."""

    served: Served
    folder: Path
    api: httpx2.Client
    http: httpx2.Client = field(default_factory=lambda: httpx2.Client(timeout=60, trust_env=False))
    checked: list[str] = field(default_factory=list[str])
    """Kinds of the bodies and events of responses that were parsed."""

    def __post_init__(self) -> None:
        self.http.event_hooks = {"response": [self._check]}

    def script(self, *replies: dict[str, Any]) -> str:
        """The name of a model that says this."""
        path = self.folder / f"script-{len(list(self.folder.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        return f"scripted:{path}"

    def session(self, *replies: dict[str, Any], **given: Any) -> dict[str, str]:
        """A new session whose model says this, as the header that names it."""
        return {"X-Pinfold-Session": create(self.api, model=self.script(*replies), **given)}

    def events(self, session: str) -> list[dict[str, Any]]:
        accept = {"Accept": "application/json"}
        return self.api.get(f"/api/sessions/{session}/events", headers=accept).json()["events"]

    def openai(self, **headers: str) -> OpenAI:
        return OpenAI(
            base_url=f"{self.served.url}/v1",
            api_key=self.served.token,
            max_retries=0,
            default_headers=headers,
            http_client=self.http,
        )

    def _check(self, response: Any) -> None:
        """Parse every body and event of a response by the types of Open Responses."""
        path = response.request.url.path
        if not path.startswith("/v1/responses") or response.request.method == "DELETE":
            return
        response.read()
        if response.status_code != 200:
            return
        if response.headers["content-type"].startswith("text/event-stream"):
            lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
            assert lines.pop() == "[DONE]"
            events = [json.loads(line) for line in lines]
            assert [one["sequence_number"] for one in events] == list(range(len(events)))
            for event in events:
                _EVENTS[event["type"]].model_validate(_known(event))
                self.checked.append(event["type"])
        else:
            open_responses.ResponseResource.model_validate(_known(response.json()))
            self.checked.append("response")


def _known(value: dict[str, Any]) -> dict[str, Any]:
    """Without the schema of a form: the package takes nothing but null there, against its own documentation."""
    match value:
        case {"text": {"format": {"schema": _} as form}} | {"response": {"text": {"format": {"schema": _} as form}}}:
            form["schema"] = None
        case _:
            pass
    return value


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Generator[Wired]:
    folder = tmp_path_factory.mktemp("wired")
    (folder / "usual.jsonl").write_text(
        "".join(json.dumps({"text": f"answer {number}"}) + "\n" for number in range(1, 30))
    )
    with pytest.MonkeyPatch.context() as environment:
        for name in ("config", "data", "state", "cache"):
            environment.setenv(f"XDG_{name.upper()}_HOME", str(folder / name))
        environment.setenv("HOME", str(folder))
        environment.setenv("PINFOLD_SANDBOX_BUILD", "off")
        (folder / "workspace").mkdir()
        served = begin(folder / "workspace", "--model", f"scripted:{folder / 'usual.jsonl'}")
    with served.client() as api:
        wired = Wired(served, folder, api)
        with wired.http:
            yield wired
    assert end(served) == 0


@pytest.fixture
def openai(wired: Wired) -> OpenAI:
    return wired.openai()
