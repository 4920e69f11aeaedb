"""The chat in a terminal: output is appended to the scrollback, and only a small region at its end is redrawn.

Modules are loaded one by one, so that the prompt appears before the rest is imported.
"""
