"""MCP servers as tools: who they are, what they said they offer, and calls to them."""
