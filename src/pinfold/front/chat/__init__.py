"""The chat in a terminal: what is said and done is appended to the scrollback, a small region at its end lives.

Its modules are loaded one by one: the prompt stands before the rest is there.
"""
