"""Compiles and runs cells, shows their values and explains their errors."""
