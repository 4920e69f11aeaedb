"""What Ollama alone can do: fetch a model for itself. Talking to it is another module's business."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from pinfold.events import Json
from pinfold.model.errors import PullFailed
from pinfold.model.local.download import words_of
from pinfold.model.local.weights import OnPulling, Pulling
from pinfold.text import first_line

_CONNECT_S = 3.0
_SILENCE_S = 120.0
"""It says something many times a second while bytes come; checking a large file takes a while."""


async def pull_for_ollama(model: str, url: str, on_progress: OnPulling) -> None:
    """Let Ollama fetch `model`. Raises PullFailed."""
    import httpx2

    told: dict[str, tuple[int, int]] = {}
    ended = False
    timeout = httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S)
    try:
        async with (
            httpx2.AsyncClient(timeout=timeout) as http,
            http.stream("POST", f"{url}/api/pull", json={"model": model, "stream": True}) as answer,
        ):
            async for line in answer.aiter_lines():
                said = _parse_line(line)
                if words := said.get("error"):
                    raise PullFailed(f"Ollama could not fetch {model}: {first_line(str(words))}")
                ended = ended or said.get("status") == "success"
                if digest := said.get("digest"):
                    told[str(digest)] = int(said.get("completed") or 0), int(said.get("total") or 0)
                done, total = (sum(numbers) for numbers in zip(*told.values(), strict=True)) if told else (0, 0)
                on_progress(Pulling(phase=_phase(said), done=done, total=total))
            if answer.status_code != 200:
                raise PullFailed(f"Ollama could not fetch {model}: it answered {answer.status_code}")
    except httpx2.ConnectError as error:
        raise PullFailed(f"nothing answers at {url}; start Ollama with `ollama serve`, or set OLLAMA_HOST") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise PullFailed(f"Ollama broke off at {url}: {first_line(words_of(error))}; try again") from error
    if not ended:
        raise PullFailed(f"Ollama broke off while fetching {model}; try again, it goes on from there")


def _phase(said: Mapping[str, Json]) -> Literal["download", "check"]:
    return "check" if str(said.get("status")).startswith(("verifying", "writing")) else "download"


def _parse_line(line: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any]) if line.strip() else {}
    except msgspec.MsgspecError:
        return {}
