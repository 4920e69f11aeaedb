"""A session over one guest at a time: cells, limits, undo, saved state, branches."""
