"""Saved state: turns variables into bytes in a copy of the session's process, and restores them in a new process."""
