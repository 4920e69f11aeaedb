"""The user's databases, read from code: statements that only read, rows as Arrow, passwords on the host."""
