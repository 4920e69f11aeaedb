"""The user's MCP servers: where they are named, where they run, what they were seen to offer, and who may say yes."""
