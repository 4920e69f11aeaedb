"""The HTTP server: sessions API, OpenAI wire, web page."""

from pinfold.front.http_server import Address
from pinfold.front.server.server import Started, make_app, serve

__all__ = ["Address", "Started", "make_app", "serve"]
