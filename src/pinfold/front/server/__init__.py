"""The HTTP server: sessions API, OpenAI wire, web page."""

from pinfold.front.server.server import Address, Started, make_app, serve

__all__ = ["Address", "Started", "make_app", "serve"]
