"""Frozen copies of the program's process: made, registered, woken."""
