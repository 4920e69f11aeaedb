"""The session and its parts: guest, cells, limits, undo, saved state, branches."""
