"""Pinfold as an MCP server: offers the sandbox, the agent, and the user's own MCP servers to any client."""

from pinfold.front.mcp_server.server import Offer, parse_address, serve_http, serve_stdio

__all__ = ["Offer", "parse_address", "serve_http", "serve_stdio"]
