"""From the launcher to a confined session: zygotes, namespaces, roots, and a session's init."""
