"""MCP servers as tools: their configuration, the tools they offer, and calls to them."""
