"""Files that a session must not read, change or plant."""
