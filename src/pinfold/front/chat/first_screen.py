"""What a new user sees first: what was found on this machine, and what will be used."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinfold.text import join_names, presentable_line

if TYPE_CHECKING:
    from pinfold.app.diagnostics import DetectedSetup

ROWS = 24
_LABEL = 16
_KINDS = {
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "openai": "OpenAI-compatible server",
}
_ISOLATION = {
    "namespaces": "full isolation (namespaces), verified in each session",
    "landlock": "lite isolation (landlock), as user namespaces are not allowed: pinfold doctor",
    "none": "no isolation available: pinfold doctor says why",
    "unknown": "verified when the first code runs",
}


def first_screen(found: DetectedSetup, width: int = 80) -> list[str]:
    """At most ROWS lines of at most `width` columns."""
    lines = ["Found on this machine:", ""]
    for label, text in (*_facts(found), ("", ""), *_conclusions(found)):
        lines += _row(label, text, max(30, width))
    return lines if len(lines) <= ROWS else [*lines[: ROWS - 1], "..."]


def _facts(found: DetectedSetup) -> Iterator[tuple[str, str]]:
    if not found.servers:
        yield "model servers", "none found (Ollama, LM Studio, llama.cpp, vLLM)"
    for place, server in enumerate(found.servers[:4]):
        models = join_names([*map(server.name_of, server.models)], 3) if server.models else "no model yet"
        offers = ", needs a key" if server.needs_key else f": {models}"
        yield "" if place else "model servers", f"{_KINDS.get(server.kind, server.kind)} at {server.base_url}{offers}"
    if found.builtin:
        there = "here" if found.builtin_here else f"not here yet, {found.builtin_size}: pinfold model pull builtin"
        yield "built-in model", f"{found.builtin}, {there}"
    keys = [f"{key.variable} ({key.provider})" for key in found.keys]
    yield "keys", join_names(keys, 4) if keys else "no provider key is set"
    chosen = "" if found.sandbox == "auto" else f"{found.sandbox}, as configured; "
    yield "sandbox", f"{chosen}{_ISOLATION[found.isolation]}"
    missing = "not installed yet: pandas and others are downloaded for the first session, 250 MB"
    yield "data libraries", "ready" if found.data_environment else missing


def _conclusions(found: DetectedSetup) -> Iterator[tuple[str, str]]:
    if found.model:
        yield "will use", f"{found.model}: {found.why}"
        yield "another model", "--model NAME, or for good: pinfold config set model.name NAME"
        return
    yield "will use", "no model yet"
    if found.offer:
        yield ("if you agree", f"{found.offer.model}: what you type and what code prints goes to {found.offer.to}")
    if found.builtin_size:
        yield "or here", f"builtin, {found.builtin_size}: pinfold model pull builtin"
    yield "or first", "pinfold demo: a recorded model, a real sandbox, no key"


def _row(label: str, text: str, width: int) -> list[str]:
    head = f"  {label:<{_LABEL}}"
    lines = textwrap.wrap(presentable_line(text), width - len(head), break_on_hyphens=False) or [""]
    return [f"{head if not place else ' ' * len(head)}{line}".rstrip() for place, line in enumerate(lines)]
