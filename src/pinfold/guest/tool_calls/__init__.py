"""Calls from cells to tools of the host, and programs run for the host."""
