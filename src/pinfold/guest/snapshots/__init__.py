"""Frozen copies of the program's process: making, registering and waking them."""
