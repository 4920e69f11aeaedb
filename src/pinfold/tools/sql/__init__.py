"""Read-only access to the user's databases from code: rows come as Arrow, passwords stay on the host."""
