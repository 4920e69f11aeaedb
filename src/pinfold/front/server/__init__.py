"""The HTTP server: sessions API, OpenAI wire, web page."""

from pinfold.front.server.server import Address, Started, is_loopback, listen, make_app, serve

__all__ = ["Address", "Started", "is_loopback", "listen", "make_app", "serve"]
