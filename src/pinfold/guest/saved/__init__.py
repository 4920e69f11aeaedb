"""Saved state: variables into bytes, in a copy of the session's process, and back, in a new one."""
