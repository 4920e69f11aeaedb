"""Commands of the chat: lines that begin with a slash.

Commands do not print what the event renderer shows anyway, such as a new title of the session.
"""
