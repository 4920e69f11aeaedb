"""The models a session asks: configured, local, and the default where none is named."""
