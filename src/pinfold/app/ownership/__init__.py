"""Which process holds a session: the owner's socket, the daemon, the warm helper, cleanup."""
