"""Pinfold as an MCP server: the sandbox, the agent, and servers of the user's, for any client."""

from pinfold.front.mcp_server.server import PORT, Offer, parse_address, serve_http, serve_stdio

__all__ = ["PORT", "Offer", "parse_address", "serve_http", "serve_stdio"]
