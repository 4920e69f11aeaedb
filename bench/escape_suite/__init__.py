"""Hostile programs by category, what they are baited with, and the builds they are proven on. Run by bench/escape.py."""
