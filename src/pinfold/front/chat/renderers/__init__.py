"""What the chat prints: events, replies, code, tables, diffs."""
