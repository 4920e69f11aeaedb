"""The routes of protocols that other programs speak: OpenAI's and AG-UI."""

from __future__ import annotations

from starlette.routing import Route

from pinfold.front.server import agui, openai_chat, openai_files, openai_models, openai_responses


def routes() -> list[Route]:
    modules = (openai_models, openai_chat, openai_responses, openai_files, agui)
    return [route for module in modules for route in module.routes()]
