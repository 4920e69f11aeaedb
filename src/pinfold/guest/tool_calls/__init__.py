"""Calls from cells to the host's tools, and programs run for the host."""
