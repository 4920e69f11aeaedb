"""Cells: compiled, run, shown and explained."""
