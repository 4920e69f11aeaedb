"""Pinfold as an MCP server: the sandbox, and the agent, for any client."""

from pinfold.front.mcp_server.serving import PORT, is_loopback, place_of, serve_http, serve_stdio

__all__ = ["PORT", "is_loopback", "place_of", "serve_http", "serve_stdio"]
